# Controls one PostgreSQL server. Reads commands from standard input, and answers each with `done` or
# `failed`. At the end of the input, stops the server and removes its folder.
#
# $1: the folder of initdb and postgres. $2: the temporary folder. $3: further options of the server. $4: the
# connection options of the primary if this server is a standby. $5: a folder with server.pem and server.key,
# if any. $6: the size of a separate disk in MiB, if any. $7: a command that starts the server, if any.
bin=$1 dir=$2 options=$3 primary=$4 certificates=$5 disk=$6 through=$7 server= poolers=
trap '' INT TERM HUP
umask 077
mkdir "$dir" || exit 1
[ -z "$disk" ] || mount -t tmpfs -o "size=${disk}m,mode=0700" none "$dir" || exit 1
as=
if [ "$(id -u)" = 0 ]; then
    # PostgreSQL refuses to run as root.
    user=postgres; id "$user" >/dev/null 2>&1 || user=nobody
    chown "$user" "$dir"
    if command -v setpriv >/dev/null; then
        as="setpriv --reuid=$user --regid=$(id -g "$user") --clear-groups --"
    else
        as="runuser -u $user --"
    fi
fi
cd "$dir"
pid() { head -n 1 "$dir/data/postmaster.pid" 2>/dev/null; }
start() {
    $as $through "$bin/postgres" -D "$dir/data" -k "$dir" -c listen_addresses= -c fsync=off \
        -c full_page_writes=off -c max_connections=300 -c shared_buffers=64MB -c wal_level=minimal \
        -c max_wal_size=256MB -c max_wal_senders=0 -c autovacuum=off -c shared_preload_libraries=plpgsql -c log_min_messages=panic -c log_destination=stderr \
        $options >"$dir/log" 2>&1 </dev/null &
    server=$!
    tries=0
    until grep -q ready "$dir/data/postmaster.pid" 2>/dev/null; do
        tries=$((tries + 1))
        if [ $tries -gt 600 ] || ! kill -0 "$server" 2>/dev/null; then return 1; fi
        sleep 0.05
    done
}
stop() {
    [ -n "$server" ] || return 0
    process=$(pid)
    [ -n "$process" ] && kill -QUIT "$process" 2>/dev/null
    wait "$server"
    rm -f "$dir/data/postmaster.pid"
    server=
}
murder() {
    process=$(pid)
    children=$(ps -o pid= --ppid "$process")
    kill -KILL "$process" $children 2>/dev/null
    # Without the shell's message about the killed process.
    { wait "$server"; } 2>/dev/null
    for child in $children; do
        while kill -0 "$child" 2>/dev/null; do sleep 0.01; done
    done
    rm -f "$dir/data/postmaster.pid"
    server=
}
follow() {
    rm -rf "$dir/data"
    # The setting that makes the primary wait for a standby isn't copied.
    $as "$bin/pg_basebackup" $1 -U postgres -D "$dir/data" -R -X stream -c fast --no-sync >"$dir/log" 2>&1 \
        && sed -i /synchronous_standby_names/d "$dir/data/postgresql.auto.conf"
}
pool() {
    # $1: the port of the pooler. $2: its mode. $3: its sessions for each database. $4: the port of the
    # server.
    cat >"$dir/pgbouncer-$1.ini" <<END
[databases]
* = host=$dir port=$4 user=postgres
[pgbouncer]
unix_socket_dir = $dir
listen_port = $1
auth_type = any
pool_mode = $2
default_pool_size = $3
max_client_conn = 1000
; The tests have many databases, and the server few sessions.
server_idle_timeout = 5
END
    chmod 644 "$dir/pgbouncer-$1.ini"
    $as pgbouncer "$dir/pgbouncer-$1.ini" >"$dir/pgbouncer-$1.log" 2>&1 </dev/null &
    poolers="$poolers $!"
    tries=0
    until [ -S "$dir/.s.PGSQL.$1" ]; do
        tries=$((tries + 1))
        if [ $tries -gt 200 ] || ! kill -0 $! 2>/dev/null; then return 1; fi
        sleep 0.05
    done
}
initialize() {
    if [ -n "$certificates" ]; then
        for file in server.pem server.key; do
            cp "$certificates/$file" "$dir/$file" && chmod 600 "$dir/$file"
            [ "$(id -u)" = 0 ] && chown "$user" "$dir/$file"
        done
    fi
    if [ -n "$primary" ]; then
        follow "$primary"
        return
    fi
    # With ICU, the default sort order isn't by bytes, so that a missing COLLATE "C" is noticed.
    common="-D $dir/data -U postgres --auth=trust --no-sync --encoding=UTF8 --locale=C"
    $as "$bin/initdb" $common --locale-provider=icu --icu-locale=en-US >"$dir/log" 2>&1 \
        || $as "$bin/initdb" $common >"$dir/log" 2>&1
}
initialize && echo done || echo failed
while read -r command argument; do
    case $command in
        start) start && echo done || echo failed ;;
        stop) stop; echo done ;;
        murder) murder; echo done ;;
        revive) kill -0 "$server" 2>/dev/null || { wait "$server"; start; } && echo done || echo failed ;;
        follow) follow "$argument" && echo done || echo failed ;;
        pool) pool $argument && echo done || echo failed ;;
    esac
done
for pooler in $poolers; do kill -TERM "$pooler" 2>/dev/null; wait "$pooler"; done
stop
cd /
[ -z "$disk" ] || umount "$dir"
rm -rf "$dir"

"""Organizations with members and invitations, and projects with members."""

# A well-formed id of an organization that doesn't exist.
UNKNOWN = "01h2xcejqtf2nbrexx3vqjhp41"
LONG = "x" * 101


def walk(w):
    organizations(w)
    members(w)
    invitations(w)
    audit_log(w)
    webhooks(w)
    projects(w)
    project_members(w)


def organizations(w):
    w.chapter("organizations")
    w.sign_up("eve")
    w.sign_up("una", verify=False)
    create = lambda body, caller="ada": w.post("/v1/organizations", body, caller)
    for body in [{}, {"name": ""}, {"name": " \u200b "}, {"name": LONG}, {"name": "a\u202eb"}, {"name": None},
                 {"name": "Acme", "description": "x" * 1001},
                 {"name": "Acme", "settings": {"default_role": "owner", "allow_public_projects": 1, "color": "red"}},
                 {"name": "Acme", "settings": []}, {"name": "Acme", "nmae": "x"}]:
        create(body)
    data = create({"name": " Acme ", "description": "Roads\nand runners", "settings": {"default_role": "member"}}).data
    w.ids["acme"] = data["id"]
    w.acme = f"/v1/organizations/{data['id']}"
    create({"name": "ACME"})
    w.foreign = f"/v1/organizations/{create({'name': 'Acme'}, 'eve').data['id']}"
    w.poor = f"/v1/organizations/{create({'name': 'Second', 'settings': None}).data['id']}"
    w.unverified = f"/v1/organizations/{create({'name': 'Third'}, 'una').data['id']}"
    for query in ["", "?search=ACM", "?search=", "?role=owner", "?role=member", "?page=2&page_size=1", "?page=9",
                  "?page=0", "?page_size=101", "?page_size=x", "?page=1&page=2", "?role=boss", "?page=",
                  "?search=" + "x" * 201, "?unknown=1", "?" + "&".join(f"f{number}=x" for number in range(300))]:
        w.get(f"/v1/organizations{query}", "ada")
    w.get(w.acme, "ada")
    w.call("HEAD", w.acme, "ada")
    w.get(w.acme, "eve")
    w.get(w.acme)
    for wrong in [f"org_{UNKNOWN}", "org_x", w.ids["ada"], w.ids["acme"].upper(), "%ff"]:
        w.get(f"/v1/organizations/{wrong}", "ada")
    for body in [{}, {"description": None}, {"name": None}, {"description": "Bridges"},
                 {"settings": {"default_role": "admin"}}, {"settings": {"default_role": None}}, {"settings": None},
                 {"name": "Second"}, {"name": "Acme"}, {"id": "x"}]:
        w.put(w.acme, body, "ada")
    w.put(w.acme, {"name": "Mine"}, "eve")
    w.put(w.acme, {"settings": {"default_role": "member"}}, "ada")
    w.put(w.acme, {"settings": {"require_sign_on": True}}, "ada")
    current = w.get(w.acme, "ada").header("etag")
    for tag in [current, current, "*", f'"x", W/{current}', "x"]:
        w.put(w.acme, {"description": f"Bridges, if {len(tag)}"}, "ada", headers=[("if-match", tag)])
    w.delete(w.acme, "ada", headers=[("if-match", current)])
    w.put(w.acme, {"description": "Bridges"}, "ada")


def members(w):
    w.chapter("invitations and members")
    invite = lambda body, caller="ada", organization=None: w.post(f"{organization or w.acme}/invitations", body, caller)
    for body in [{}, {"email": "bob"}, {"email": "bob@example.com", "role": "boss"},
                 {"email": "bob@example.com", "message": "x" * 1001}, {"email": "ada@example.com"}]:
        invite(body)
    invite({"email": "bob@example.com"}, "una", w.unverified)
    invite({"email": "bob@example.com", "role": "admin", "message": "Join us\nat http://example.com"})
    invite({"email": "Bob@example.com"})
    token = w.mail("bob@example.com", "Invitation")
    w.get(f"/invitations/accept?token={token}")
    w.form("/invitations/accept", token=token)
    verification = w.sign_up("bob", verify=False)
    w.form("/invitations/accept", token=token)
    w.post("/v1/auth/verify-email", {"token": verification})
    w.form("/invitations/accept", token=token)
    w.log_in("bob")
    w.form("/invitations/accept", token=token)
    for name in ["cem", "vic", "dan", "pam", "lee"]:
        w.sign_up(name)
        w.invite(name, "member", w.acme)
    invite({"email": "new@example.com", "role": "owner"}, "bob")
    invite({"email": "new@example.com"}, "cem")
    invite({"email": "new@example.com"}, "eve")
    invite({"email": "new@example.com"}, "bob")
    w.invitation = w.mail("new@example.com", "Invitation")
    for query in ["", "?search=AM.c", "?search=pam", "?role=owner", "?role=viewer", "?page=2&page_size=2"]:
        w.get(f"{w.acme}/members{query}", "cem")
    w.get(f"{w.acme}/members", "eve")
    member = lambda name: f"{w.acme}/members/{w.ids[name]}"
    for body in [{}, {"role": "boss"}, {"role": None}, {"role": "admin"}, {"role": "member"}]:
        w.put(member("lee"), body, "ada")
    for caller, target, role in [("cem", "lee", "admin"), ("bob", "lee", "owner"), ("bob", "ada", "member"),
                              ("ada", "ada", "admin"), ("eve", "lee", "admin")]:
        w.put(member(target), {"role": role}, caller)
    w.put(f"{w.acme}/members/{w.ids['eve']}", {"role": "member"}, "ada")
    w.put(f"{w.acme}/members/user_x", {"role": "member"}, "ada")
    for caller, target in [("cem", "lee"), ("bob", "ada"), ("ada", "ada"), ("ada", "eve"), ("eve", "lee")]:
        w.delete(member(target), caller)
    w.delete(member("lee"), "lee")
    w.invite("lee", "member", w.acme)
    w.delete(member("lee"), "ada")
    w.get(w.acme, "lee", note="who was removed")


def invitations(w):
    w.chapter("invitations that are listed, withdrawn and sent again")
    all_of = f"{w.acme}/invitations"
    sent = {}
    for name, role in [("old", "member"), ("gone", "owner")]:
        body = {"email": f"{name}@example.com", "role": role}
        sent[name] = f"{all_of}/{w.post(all_of, body, 'ada').data['invitation_id']}"
        first = w.mail(f"{name}@example.com", "Invitation")
    w.old_invitation = sent["old"]
    for query in ["", "?status=pending", "?status=accepted&page_size=1", "?status=expired", "?page_size=2&page=2",
                  "?page=9", "?status=withdrawn", "?status=", "?page=0"]:
        w.get(f"{all_of}{query}", "bob")
    for caller in ["cem", "eve", "anonymous"]:
        w.get(all_of, caller)
    # Bob is an admin, who can't invite owners.
    for caller in ["bob", "cem", "eve", "anonymous", "ada"]:
        w.post(f"{sent['gone']}/resend", None, caller)
    second = w.mail("gone@example.com", "Invitation")
    w.form("/invitations/accept", token=first)
    for caller in ["bob", "cem", "eve", "anonymous", "ada", "ada"]:
        w.delete(sent["gone"], caller)
    w.post(f"{sent['gone']}/resend", None, "ada")
    w.form("/invitations/accept", token=second)
    accepted = w.get(f"{all_of}?status=accepted", "ada").data["invitations"][0]["id"]
    for wrong in [accepted, f"inv_{UNKNOWN}", "inv_x", sent["old"].rsplit("/", 1)[1].upper()]:
        w.delete(f"{all_of}/{wrong}", "ada")
        w.post(f"{all_of}/{wrong}/resend", None, "ada")


def audit_log(w):
    w.chapter("audit log")
    log = f"{w.acme}/audit-log"
    for query in ["?page_size=3", "?page_size=3&page=2", "?page=99", "?action=invitation.withdrawn",
                  f"?actor={w.ids['bob']}&page_size=2", f"?target={w.ids['lee']}",
                  f"?actor=system&target={w.ids['acme']}", "?start_date=2040-03-10&page_size=1",
                  "?end_date=2030-03-10T12:00:00%2B01:00", "?actor=", "?target=" + "x" * 129, "?action=fly",
                  "?start_date=x", "?start_date=2040-03-11&end_date=2040-03-10", "?page_size=0"]:
        w.get(f"{log}{query}", "ada")
    for caller in ["bob", "cem", "eve", "anonymous"]:
        w.get(f"{log}?page_size=1", caller)
    w.get(f"{log}?action=invitation.resent", "ada", headers=[("accept", "text/csv")])
    w.get(f"{log}?action=invitation.resent", "ada", headers=[("accept", "application/json, text/csv;q=0.5")])


def webhooks(w):
    w.chapter("webhooks")
    all_of = f"{w.acme}/webhooks"
    # The host has no IP address, so every attempt fails.
    good = {"url": "https://events.invalid/in", "events": ["invoice.paid", "credit.added"]}
    for body in [{}, {"url": "events.invalid", "events": []}, {**good, "events": ["webhook.test", "fly"]},
                 {**good, "url": "https://ada:word@events.invalid/"}, {**good, "url": "http://events.invalid/"},
                 {**good, "url": "https://events.invalid:22/"}, {**good, "url": "https://127.0.0.1/"},
                 {**good, "url": "https://events.invalid/" + "a" * 1_024}]:
        w.post(all_of, body, "ada")
    for caller in ["bob", "cem", "eve", "anonymous"]:
        w.post(all_of, good, caller)
    created = w.post(all_of, {**good, "description": "Accounting"}, "ada", headers=[("idempotency-key", "webhook")]).data
    w.post(all_of, {**good, "description": "Accounting"}, "ada", headers=[("idempotency-key", "webhook")])
    one = f"{all_of}/{created['id']}"
    for caller in ["ada", "bob", "cem", "eve", "anonymous"]:
        w.get(all_of, caller)
        w.get(one, caller)
    for wrong in [f"webhook_{UNKNOWN}", "webhook_x"]:
        w.get(f"{all_of}/{wrong}", "ada")
    for body in [{"url": None}, {"events": []}, {"enabled": "yes"}, {}, {"description": None, "events": ["member.added"]}]:
        w.put(one, body, "ada")
    w.put(one, {"description": "Ours"}, "ada", headers=[("if-match", '"x"')])
    w.post(f"{one}/rotate", None, "ada")
    queued = w.post(f"{one}/test", None, "ada").data
    deliveries = f"{one}/deliveries"
    for query in ["?state=pending", "?state=succeeded", "?state=lost", "?page_size=0"]:
        w.get(f"{deliveries}{query}", "ada")
    for caller in ["ada", "bob", "eve"]:
        w.post(f"{deliveries}/{queued['delivery_id']}/redeliver", None, caller)
    w.post(f"{deliveries}/delivery_{UNKNOWN}/redeliver", None, "ada")
    for body in [{}, {"since": "soon"}, {"since": "2040-03-10T00:00:00Z"}]:
        w.post(f"{one}/redeliver", body, "ada")
    w.put(one, {"enabled": False}, "ada")
    w.post(f"{one}/test", None, "ada")
    w.delete(one, "bob")
    w.delete(one, "ada")
    w.delete(one, "ada")


def projects(w):
    w.chapter("projects")
    all_of = f"{w.acme}/projects"
    for body in [{}, {"name": LONG}, {"name": "Bot", "visibility": "open"}, {"name": "Bot", "visibility": "public"},
                 {"name": "Bot", "settings": {"model": "nothing", "max_tokens": 0, "temperature": 3}},
                 {"name": "Bot", "settings": {"model": "chat-1", "max_tokens": 5000}},
                 {"name": "Bot", "settings": {"model": "chat-retired", "temperature": "warm", "top": 1}},
                 {"name": "Bot", "settings": {"temperature": 0.1234567, "max_tokens": 1.5}}]:
        w.post(all_of, body, "ada")
    for caller in ["cem", "eve", "anonymous"]:
        w.post(all_of, {"name": "Bot"}, caller)
    data = w.post(all_of, {"name": "Bot", "description": "Chats",
                           "settings": {"model": "chat-1", "max_tokens": 4096.0, "temperature": 0.7}}, "ada").data
    w.ids["bot"] = data["id"]
    w.bot = f"{all_of}/{data['id']}"
    w.post(all_of, {"name": "bot"}, "bob")
    w.ids["search"] = w.post(all_of, {"name": "Search", "settings": {"temperature": 1e0}}, "bob").data["id"]
    w.search = f"{all_of}/{w.ids['search']}"
    for caller in ["ada", "bob", "cem", "eve"]:
        w.get(all_of, caller)
    for query in ["?search=SEAR", "?role=owner", "?role=viewer", "?role=member", "?page_size=1"]:
        w.get(f"{all_of}{query}", "ada")
    for caller in ["ada", "cem", "eve", "anonymous"]:
        w.get(w.bot, caller)
    w.get(f"{w.foreign}/projects/{w.ids['bot']}", "eve")
    w.get(f"{all_of}/proj_{UNKNOWN}", "ada")
    current = w.get(w.bot, "ada").header("etag")
    for tag in ['"x"', current]:
        w.put(w.bot, {"description": "Chats"}, "ada", headers=[("if-match", tag)])
    w.delete(w.bot, "ada", headers=[("if-match", '"x"')])
    w.get(f"{all_of}/x", "cem")
    for body in [{}, {"name": None}, {"description": None}, {"settings": {"max_tokens": None}},
                 {"settings": {"max_tokens": 9000}}, {"settings": {"model": "acme/chat-2", "max_tokens": 2048}},
                 {"settings": {"model": "nothing"}}, {"visibility": "public"}, {"visibility": None},
                 {"name": "Search"}, {"settings": None}, {"name": "Bot", "description": "Talks"}, {"owner": 1}]:
        w.put(w.bot, body, "ada")
    w.put(w.bot, {"name": "Mine"}, "cem")
    w.put(w.acme, {"settings": {"allow_public_projects": True}}, "ada")
    w.put(w.search, {"visibility": "public"}, "ada")
    w.get(w.search, "cem", note="a public project")
    w.put(w.acme, {"settings": {"allow_public_projects": False}}, "ada")
    w.get(w.search, "cem", note="not public any more")
    w.put(w.search, {"visibility": "private"}, "ada")


def project_members(w):
    w.chapter("members of a project")
    all_of = f"{w.bot}/members"
    add = lambda body, caller="ada": w.post(all_of, body, caller)
    for body in [{}, {"user_id": 1, "role": "boss"}, {"user_id": w.ids["vic"]}, {"user_id": "x", "role": "viewer"},
                 {"user_id": f"user_{UNKNOWN}", "role": "viewer"}]:
        add(body)
    for name, role in [("vic", "viewer"), ("dan", "developer"), ("pam", "admin")]:
        add({"user_id": w.ids[name], "role": role})
    w.mail("vic@example.com", "You were added")
    add({"user_id": w.ids["vic"], "role": "developer"})
    add({"user_id": w.ids["rob"], "role": "viewer"}, "pam")
    add({"user_id": w.ids["cem"], "role": "owner"}, "pam")
    for caller in ["dan", "cem", "eve"]:
        add({"user_id": w.ids["cem"], "role": "viewer"}, caller)
    add({"user_id": w.ids["rob"], "role": "viewer"}, "bob")
    for query in ["", "?role=admin", "?search=dan", "?role=member", "?page=0"]:
        w.get(f"{all_of}{query}", "vic")
    w.get(all_of, "cem")
    member = lambda name: f"{all_of}/{w.ids[name]}"
    for body in [{}, {"role": "boss"}, {"role": None}, {"role": "viewer"}, {"role": "developer"}]:
        w.put(member("rob"), body, "pam")
    for caller, target, role in [("dan", "rob", "viewer"), ("pam", "rob", "owner"), ("pam", "ada", "viewer"),
                              ("ada", "cem", "viewer"), ("eve", "rob", "viewer")]:
        w.put(member(target), {"role": role}, caller)
    for caller, target in [("dan", "rob"), ("pam", "ada"), ("ada", "cem"), ("eve", "rob"), ("rob", "rob")]:
        w.delete(member(target), caller)
    w.get(w.bot, "rob", note="who has left the project")
    add({"user_id": w.ids["rob"], "role": "viewer"})
    w.delete(member("rob"), "ada")
    gone = f"{w.acme}/projects/{w.post(f'{w.acme}/projects', {'name': 'Gone'}, 'ada').data['id']}"
    w.post(f"{gone}/members", {"user_id": w.ids["dan"], "role": "admin"}, "ada")
    for caller in ["dan", "cem", "anonymous", "ada", "ada"]:
        w.delete(gone, caller)
    w.mail("dan@example.com", "Gone was deleted")

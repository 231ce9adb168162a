"""A mail server for the tests. It writes received mails to a folder, and fails as configured.

It prints its port once it listens, and stops when its standard input is closed, regardless of how the test ends.
"""

import argparse
import asyncio
import json
import logging
import os
import ssl
import sys
import warnings

from aiosmtpd.smtp import SMTP, AuthResult

parser = argparse.ArgumentParser()
parser.add_argument("--folder", required=True, help="folder for one JSON file per mail, and transcript.log")
parser.add_argument("--port", type=int, default=0)
parser.add_argument("--tls", choices=["none", "starttls", "implicit"], default="none")
parser.add_argument("--certificate")
parser.add_argument("--key")
parser.add_argument("--login", help="USER:PASSWORD that is required to send mail")
# The value of each option is a part of the recipients' addresses to which it applies.
parser.add_argument("--refuse", help="answer 550 to the recipient")
parser.add_argument("--defer", help="answer 451 to the recipient")
parser.add_argument("--refuse-sender", help="answer 553 to the sender; the value is a part of the sender's address")
parser.add_argument("--refuse-content", help="answer 554 to the mail, and repeat the recipient and the mail")
parser.add_argument("--slow", help="answer the recipient only after minutes")
parser.add_argument("--slow-content", help="accept the mail, but answer two seconds later")
options = parser.parse_args()


def concerns(word, address):
    return word is not None and word in address


class Handler:
    count = 0

    async def handle_MAIL(self, server, session, envelope, address, mail_options):
        if concerns(options.refuse_sender, address):
            return f"553 5.7.1 <{address}>: not an address of yours"
        envelope.mail_from = address
        envelope.mail_options.extend(mail_options)
        return "250 2.1.0 OK"

    async def handle_RCPT(self, server, session, envelope, address, rcpt_options):
        if concerns(options.refuse, address):
            return f"550 5.1.1 <{address}>: no such user"
        if concerns(options.defer, address):
            return f"451 4.7.1 <{address}>: greylisted"
        if concerns(options.slow, address):
            await asyncio.sleep(300)
        envelope.rcpt_tos.append(address)
        return "250 2.1.5 OK"

    async def handle_DATA(self, server, session, envelope):
        content = envelope.content.decode()
        if any(concerns(options.refuse_content, address) for address in envelope.rcpt_tos):
            return f"554 5.6.0 {' '.join(envelope.rcpt_tos)} {' '.join(content.split())}"[:900]
        mail = {
            "from": envelope.mail_from,
            "to": envelope.rcpt_tos,
            "tls": server.transport.get_extra_info("ssl_object") is not None,
            "login": session.auth_data,
            "peer": session.peer[1],
            "content": content,
        }
        Handler.count += 1
        path = os.path.join(options.folder, f"{os.getpid()}-{Handler.count:06}")
        with open(path + ".tmp", "w", encoding="utf-8") as file:
            json.dump(mail, file)
        os.rename(path + ".tmp", path + ".json")
        if any(concerns(options.slow_content, address) for address in envelope.rcpt_tos):
            await asyncio.sleep(2)
        return "250 2.0.0 OK"


def authenticate(server, session, envelope, mechanism, data):
    login = f"{data.login.decode()}:{data.password.decode()}"
    if login != options.login:
        return AuthResult(success=False, handled=False)
    return AuthResult(success=True, auth_data=data.login.decode())


async def main():
    # Hides the library's warnings about options that we use on purpose.
    warnings.simplefilter("ignore")
    logging.basicConfig(
        filename=os.path.join(options.folder, "transcript.log"), level=logging.INFO, format="%(message)s"
    )
    context = None
    if options.tls != "none":
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(options.certificate, options.key)
    starttls = options.tls == "starttls"

    def protocol():
        return SMTP(
            Handler(),
            hostname="mail.test",
            enable_SMTPUTF8=True,
            tls_context=context if starttls else None,
            require_starttls=starttls,
            authenticator=authenticate if options.login else None,
            auth_required=options.login is not None,
            auth_require_tls=starttls,
            loop=asyncio.get_running_loop(),
        )

    server = await asyncio.get_running_loop().create_server(
        protocol, "127.0.0.1", options.port, ssl=context if options.tls == "implicit" else None
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    # sys.exit would wait for connections with a slow response.
    os._exit(0)


asyncio.run(main())

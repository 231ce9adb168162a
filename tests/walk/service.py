"""The service listener: decisions about model calls, reservations, and usage."""

import datetime

from installation import BASE, SERVICE_TOKEN
from organizations import UNKNOWN


def walk(w):
    authorize(w)
    forward_auth(w)
    reservations(w)
    usage(w)
    refused_events(w)
    cloud_events(w)


def question(w, key="whole key", **changes):
    body = {"credential": w.bearers[key], "operation": "chat", "model": "chat-1", "max_tokens": 100,
            "estimated_prompt_tokens": 50, **changes}
    return {name: value for name, value in body.items() if value is not ...}


def authorize(w):
    w.chapter("authorize")
    ask = lambda key="whole key", **changes: w.ask("/service/v1/authorize", question(w, key, **changes))
    for caller in ["anonymous", "ada", "whole key"]:
        w.ask("/service/v1/authorize", question(w), caller)
    w.ask("/service/v1/authorize", {})
    w.ask("/service/v1/authorize", {"credential": 1, "operation": "fly", "max_tokens": -1, "reserve": "no"})
    for changes in [{"model": ...}, {"client_address": "1.2.3"}, {"request_id": ""}, {"choices": 0}, {"inputs": 2049},
                    {"mode": "nginx"}, {"credential": "x" * 5000}, {"model": "x" * 129}]:
        ask(**changes)
    ask()
    ask(operation="chat", reserve=False)
    ask(operation="chat", max_tokens=..., choices=3)
    ask(operation="embeddings", model="embed-1", max_tokens=..., inputs=4)
    ask(operation="models", model=...)
    ask(operation="files", model=...)
    for changes in [{"model": "nothing"}, {"model": "embed-1"}, {"model": "chat-unpriced"}, {"model": "chat-retired"},
                    {"max_tokens": 5000}, {"model": "chat-dear", "choices": 128, "max_tokens": ...}]:
        ask(**changes)
    for changes in [{"model": "embed-1", "operation": "embeddings"}, {"model": "chat-single"}, {"max_tokens": 2000},
                    {"max_tokens": ...}, {"model": "acme/chat-2"}]:
        ask("narrow key", **changes)
    for address in [..., "203.0.113.7", "203.0.113.8", "2001:db8::1", "::ffff:203.0.113.7"]:
        ask("key from elsewhere", client_address=address)
    w.bearers["broken token"] = w.bearers["ada"][:-4] + "AAAA"
    for key in ["no key", "its oldest secret", "broken token", "rotated key"]:
        ask(key)
    ask(organization_id=w.ids["acme"], project_id=w.ids["bot"])
    ask(organization_id="org_x")
    ask(project_id=w.ids["search"])
    here = {"organization_id": w.ids["acme"], "project_id": w.ids["bot"]}
    for caller in ["ada", "bob", "dan", "vic", "cem", "eve"]:
        ask(caller, **here)
    for changes in [{}, {"organization_id": w.ids["acme"]}, {**here, "organization_id": f"org_{UNKNOWN}"},
                    {**here, "project_id": "proj_x"}, {**here, "project_id": f"proj_{UNKNOWN}"}]:
        ask("ada", **changes)
    for _ in range(2):
        ask("second slow key")
    for _ in range(2):
        ask(model="chat-slow")
    for _ in range(2):
        ask(model="chat-single")
    ask("poor key")
    for changes in [{}, {}, {"max_tokens": 101}]:
        ask(request_id="call-1", **changes)


def forward_auth(w):
    w.chapter("forward-auth")
    service = ("x-tollkeeper-service-token", SERVICE_TOKEN)

    def ask(query, key="whole key", headers=(service,), method="GET", address="203.0.113.7"):
        more = [("x-forwarded-for", address)] if address else []
        return w.call(method, f"/service/v1/forward-auth?{query}", key, headers=[*headers, *more], listener="service")

    chat = "operation=chat&model=chat-1&max_tokens=100"
    # The limits of this key and this model are exhausted for a minute.
    ask("operation=models", "third slow key")
    ask("operation=chat&model=chat-slow-2")
    ask(chat, headers=())
    ask(chat, headers=[(service[0], "x" * 30)])
    ask(chat, headers=[service, service])
    for query in ["", "operation=fly&max_tokens=x&mode=apache", "operation=chat", "operation=chat&operation=chat",
                  f"{chat}&choices=0", f"{chat}&request_id="]:
        ask(query)
    for mode in ["", "&mode=nginx"]:
        ask(chat + mode)
        ask(chat + "&reserve=false" + mode)
        ask(chat + mode, method="HEAD")
        ask("operation=models" + mode)
        ask("operation=chat&model=nothing" + mode)
        ask("operation=chat&model=chat-1&max_tokens=5000" + mode)
        ask("operation=chat&model=chat-dear&choices=128" + mode)
        ask("operation=chat&model=chat-slow-2" + mode)
        ask("operation=chat&model=chat-single" + mode)
        for key in ["anonymous", "no key", "narrow key", "chat key", "poor key", "ada", "third slow key"]:
            ask("operation=embeddings&model=embed-1" + mode, key)
        ask(chat + mode, "key from elsewhere")
        ask(chat + mode, "key from elsewhere", address=None)
        ask(chat + f"&organization_id={w.ids['acme']}&project_id={w.ids['bot']}" + mode, "dan")
        ask(chat + mode, "dan", headers=[service, ("openai-organization", w.ids["acme"]),
                                         ("openai-project", w.ids["bot"])])
        ask(chat + f"&organization_id={w.ids['acme']}&project_id={w.ids['bot']}" + mode, "vic")
        ask(chat + f"&organization_id=org_x&project_id={w.ids['bot']}" + mode, "ada")
        ask(chat + f"&project_id={w.ids['search']}" + mode)
        ask(chat + f"&request_id=call-2{mode}")
        ask(chat + f"&request_id=call-2&choices=2{mode}")


def reserve(w, key="whole key"):
    answer = w.ask("/service/v1/authorize", question(w, key)).json()
    return answer["reservation"]["id"]


def reservations(w):
    w.chapter("reservations")
    one = f"/service/v1/reservations/{reserve(w)}"
    for wrong in [f"/service/v1/reservations/res_{UNKNOWN}", "/service/v1/reservations/x"]:
        w.ask(f"{wrong}/extend")
        w.delete(wrong, "service", listener="service")
    for caller in ["anonymous", "ada"]:
        w.ask(f"{one}/extend", caller=caller)
        w.delete(one, caller, listener="service")
    w.ask(f"{one}/extend")
    for _ in range(2):
        w.delete(one, "service", listener="service")
    w.ask(f"{one}/extend")


def event(w, number, key="whole key", **changes):
    """Builds an event at the start time of the walk."""
    body = {"id": f"e{number}", "source": "walk", "time": moment(), "api_key_id": w.ids.get(key), "model": "chat-1",
            "kind": "chat", "prompt_tokens": 1000, "completion_tokens": 500, **changes}
    return {name: value for name, value in body.items() if value is not ...}


def moment(**shift):
    return (BASE + datetime.timedelta(**shift)).strftime("%Y-%m-%dT%H:%M:%SZ")


def report(w, *events, **more):
    return w.ask("/service/v1/usage", {"events": list(events)}, **more)


def usage(w):
    w.chapter("usage")
    for caller in ["anonymous", "ada", "whole key"]:
        report(w, event(w, 1), caller=caller)
    for body in [{}, {"events": []}, {"events": {}}, {"events": [event(w, 1)] * 1001}, {"event": []}, [event(w, 1)]]:
        w.ask("/service/v1/usage", body)
    report(w, event(w, 1))
    report(w, event(w, 1), event(w, 1, prompt_tokens=1), event(w, 2), event(w, 2))
    captured = reserve(w)
    report(w, event(w, 3, reservation_id=captured), event(w, 4, reservation_id=f"res_{UNKNOWN}"))
    w.delete(f"/service/v1/reservations/{captured}", "service", listener="service", note="that was captured")
    report(w, event(w, 5, model="embed-1", kind="embeddings", completion_tokens=...),
           event(w, 6, model="acme/chat-2"), event(w, 7, model="chat-retired"),
           event(w, 8, model="chat-1", prompt_tokens=5_200_000, completion_tokens=0),
           event(w, 9, "narrow key"), event(w, 10, "foreign key"))
    person = {"api_key_id": ..., "project_id": w.ids["bot"], "user_id": w.ids["dan"]}
    report(w, event(w, 11, **person), event(w, 12, **person, model="embed-1", kind="embeddings", completion_tokens=0))
    for number, (word, owner) in enumerate([("payer", "rob"), ("voided", "pia")], 21):
        # These organizations are separate because their invoices get another status.
        organization = w.post("/v1/organizations", {"name": word}, owner).data["id"]
        w.ids[word] = organization
        project = w.post(f"/v1/organizations/{organization}/projects", {"name": "Bot"}, owner).data["id"]
        w.make_key(f"{word}'s key", f"/v1/organizations/{organization}/projects/{project}", {"name": "Key"}, owner)
        report(w, event(w, number, f"{word}'s key", prompt_tokens=100_000))
    correct = lambda number, of, **changes: event(
        w, number, corrects=of, **{"prompt_tokens": -100, "completion_tokens": 0, **changes})
    report(w, correct(13, "e2"), correct(13, "e2"), correct(14, "e2", prompt_tokens=-2000), correct(15, "e99"),
           correct(16, "e2", model="chat-single"), correct(17, "e13"), correct(18, "e2", prompt_tokens=0),
           correct(19, "e2", prompt_tokens=5), correct(20, "e2", prompt_tokens=-900, completion_tokens=-500))


def refused_events(w):
    w.chapter("refused events")
    report(w, event(w, 30, "none", api_key_id=f"key_{UNKNOWN}"),
           event(w, 31, api_key_id=..., project_id=f"proj_{UNKNOWN}", user_id=w.ids["dan"]),
           event(w, 32, api_key_id=..., project_id=w.ids["bot"], user_id=f"user_{UNKNOWN}"),
           event(w, 33, model="nothing"), event(w, 34, kind="embeddings"), event(w, 35, model="chat-unpriced"),
           event(w, 36, time=moment(minutes=30)), event(w, 37, time=moment(days=-410)),
           event(w, 38, time=moment(hours=-2)), event(w, 39, model="chat-dear", prompt_tokens=1_000_000_000),
           event(w, 40, model="embed-1", kind="embeddings", completion_tokens=1))
    report(w, {}, 1, event(w, 50, id=""), event(w, 51, source="a\nb"), event(w, 52, time="now"),
           event(w, 53, api_key_id="x"), event(w, 54, project_id=w.ids["bot"]), event(w, 55, user_id=w.ids["dan"]),
           event(w, 56, api_key_id=...), event(w, 57, api_key_id=..., user_id=w.ids["dan"]),
           event(w, 58, kind="images"), event(w, 59, prompt_tokens=-1), event(w, 60, prompt_tokens=1_000_000_001),
           event(w, 61, prompt_tokens="1"), event(w, 62, reservation_id="x"), event(w, 63, corrects=""),
           event(w, 64, tokens=1), event(w, 65, model=None))


def cloud_events(w):
    w.chapter("CloudEvents")
    def cloud(number, data=(), **changes):
        plain = event(w, number)
        attributes = {name: plain.pop(name) for name in ["id", "source", "time"]}
        return {"specversion": "1.0", "type": "tollkeeper.usage.v1", **attributes, "data": {**plain, **dict(data)},
                "extension": 1, **changes}

    def send(body, kind):
        w.ask("/service/v1/usage", body, headers=[("content-type", f"application/{kind}+json")])

    send(cloud(70), "cloudevents")
    send([cloud(70), cloud(71), cloud(72, specversion="0.3", type="other"), cloud(73, datacontenttype="text/xml"),
          cloud(74, {"model": "nothing"}), cloud(75, {"prompt_tokens": "x"}), cloud(76, data=[])],
         "cloudevents-batch")
    send([], "cloudevents-batch")
    send({}, "cloudevents-batch")
    send({}, "cloudevents")

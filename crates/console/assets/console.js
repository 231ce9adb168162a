// Improvements of the pages. Everything except copying and passkeys also works without this script.

// Copies a text. The buttons are hidden until they work.
if (navigator.clipboard) {
  for (const button of document.querySelectorAll("button[data-copy]")) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
        button.textContent = "Copied";
      } catch {
        button.textContent = "Select the text, and copy it";
      }
    });
  }
}

// Shows times in the reader's time zone. The title keeps the time in UTC.
const format = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
for (const time of document.querySelectorAll("time[datetime][title]")) {
  const at = new Date(time.dateTime);
  if (!Number.isNaN(at.getTime())) time.textContent = format.format(at);
}

// Shows the time that remains until a given time.
const relative = new Intl.RelativeTimeFormat(undefined, { numeric: "always" });
function countDown() {
  for (const time of document.querySelectorAll("time[data-countdown]")) {
    const seconds = Math.round((new Date(time.dateTime) - Date.now()) / 1000);
    const [amount, unit] =
      Math.abs(seconds) < 90 ? [seconds, "second"]
      : Math.abs(seconds) < 5400 ? [Math.round(seconds / 60), "minute"]
      : Math.abs(seconds) < 129600 ? [Math.round(seconds / 3600), "hour"]
      : [Math.round(seconds / 86400), "day"];
    time.textContent = seconds > 0 ? relative.format(amount, unit) : "now";
  }
}
if (document.querySelector("time[data-countdown]")) {
  countDown();
  setInterval(countDown, 1000);
}

// Sends a form only once, even if its button is pressed several times. No event reports that a browser has aborted a
// submission, so the form can be sent again after a while.
const release = (form) => {
  delete form.dataset.sent;
  for (const button of form.querySelectorAll("[aria-disabled=true]")) button.removeAttribute("aria-disabled");
};
for (const form of document.querySelectorAll("form[method=post]:not([data-stream])")) {
  form.addEventListener("submit", (event) => {
    if (form.dataset.sent) {
      event.preventDefault();
      return;
    }
    form.dataset.sent = "true";
    for (const button of form.querySelectorAll("button[type=submit]")) button.setAttribute("aria-disabled", "true");
    setTimeout(release, 10000, form);
  });
}
// Enables the forms again when a page is restored from the browser's back-forward cache.
addEventListener("pageshow", (event) => {
  if (event.persisted) for (const form of document.querySelectorAll("form[data-sent]")) release(form);
});

// Shows a model's answer as it arrives. If the response isn't a stream of lines, the form is submitted normally.
const prompt = document.querySelector("form[data-stream]");
if (prompt) {
  const answer = document.querySelector("[data-answer]");
  const slot = (name) => answer.querySelector(`[data-shown=${name}]`) ?? document.getElementById(name);
  const send = prompt.querySelector("[type=submit]");
  const stop = prompt.querySelector("[data-stop]");
  const say = (name, words) => {
    slot(name).textContent = words;
    slot(name).hidden = !words;
  };
  const show = (line) => {
    if (line.text) slot("text").append(line.text);
    for (const name of ["remark", "failure"]) if (line[name]) say(name, line[name]);
    const { exact_price: exact, ...figures } = line.figures ?? {};
    for (const [name, words] of Object.entries(figures)) slot(name).textContent = words;
    if (exact) slot("price").title = exact;
    for (const name of ["curl", "python"]) if (line[name]) slot(name).textContent = line[name];
  };
  const read = async (body) => {
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    for (let rest = ""; ;) {
      const { value, done } = await reader.read();
      if (done) return;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines) show(JSON.parse(line));
    }
  };
  let calls;
  stop.addEventListener("click", () => calls?.abort());
  prompt.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (calls) return;
    calls = new AbortController();
    send.setAttribute("aria-disabled", "true");
    stop.hidden = false;
    for (const name of ["remark", "failure"]) say(name, "");
    for (const name of ["prompt_tokens", "completion_tokens", "price"]) slot(name).textContent = "–";
    slot("text").textContent = "";
    slot("text").setAttribute("aria-busy", "true");
    answer.hidden = false;
    try {
      const body = new URLSearchParams(new FormData(prompt));
      const response = await fetch(prompt.dataset.stream, { method: "POST", body, signal: calls.signal });
      if (!response.headers.get("content-type")?.startsWith("application/x-ndjson")) return prompt.submit();
      await read(response.body);
    } catch (error) {
      if (error.name === "AbortError") say("remark", "Stopped. What had been answered until then is charged.");
      else say("failure", "The connection broke: look at the usage of the project before you send it again.");
    } finally {
      calls = undefined;
      slot("text").removeAttribute("aria-busy");
      send.removeAttribute("aria-disabled");
      stop.hidden = true;
    }
  });
}

// Passkeys: a click on the button or the autofill of the e-mail field requests a passkey, and the form sends the
// browser's response.
const place = document.querySelector("[data-elsewhere]");
if (place) place.hidden = place.dataset.elsewhere === location.origin;
const asked = document.querySelector("[data-passkey]");
const passkeys = window.PublicKeyCredential;
if (asked?.dataset.origin === location.origin && passkeys?.parseRequestOptionsFromJSON) {
  const { form, dataset } = asked;
  const options = JSON.parse(dataset.passkey);
  const failure = form.querySelector("[data-failure]");
  let calls;
  const use = async (mediation) => {
    calls?.abort();
    const { signal } = (calls = new AbortController());
    failure.hidden = true;
    try {
      const answer = await (options.user
        ? navigator.credentials.create({ publicKey: passkeys.parseCreationOptionsFromJSON(options), signal })
        : navigator.credentials.get({ publicKey: passkeys.parseRequestOptionsFromJSON(options), mediation, signal }));
      form.elements.credential.value = JSON.stringify(answer);
      form.action = dataset.action;
      form.submit();
    } catch {
      failure.hidden = mediation || signal.aborted;
    }
  };
  asked.hidden = false;
  asked.addEventListener("click", () => {
    if (!options.user || form.reportValidity()) use();
  });
  if (document.querySelector("[autocomplete~=webauthn]")) {
    passkeys.isConditionalMediationAvailable?.().then((can) => can && use("conditional"));
  }
}

// Applies filters as soon as an option is chosen.
for (const form of document.querySelectorAll("form[data-filters]")) {
  for (const choice of form.querySelectorAll("select, input[type=checkbox], input[type=radio]")) {
    choice.addEventListener("change", () => form.requestSubmit());
  }
}

// Asks for confirmation before leaving a page with a secret that isn't shown again.
const kept = document.querySelector("input[data-kept]");
if (kept) {
  addEventListener("beforeunload", (event) => {
    if (!kept.checked) event.preventDefault();
  });
}

// Closes menus on Escape and on a click elsewhere.
const menus = [...document.querySelectorAll("details.menu")];
addEventListener("click", (event) => {
  for (const menu of menus) if (!menu.contains(event.target)) menu.open = false;
});
addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  for (const menu of menus.filter((menu) => menu.open)) {
    menu.open = false;
    menu.querySelector("summary").focus();
  }
});

// Scrolls the navigation, which is a row on narrow screens, so that the link to the current page is visible.
const side = document.querySelector(".side");
const here = side?.querySelector("[aria-current]");
if (here) side.scrollLeft = here.offsetLeft - (side.clientWidth - here.offsetWidth) / 2;

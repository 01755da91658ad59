// The console's one script. Every page works without it; with it, pages follow what happens, forms ask before
// they do what cannot be undone, passkeys answer, and keys lead everywhere.
"use strict";
(() => {
  const root = document.documentElement, SETTLES = 350;
  root.classList.add("js");
  const $ = (id) => document.getElementById(id);

  // --- times, in the reader's own zone

  const zoned = (within) => {
    for (const time of within.querySelectorAll("time[datetime]")) {
      const at = new Date(time.dateTime);
      if (!Number.isNaN(at.valueOf())) {
        if ("said" in time.dataset) { time.title = at.toLocaleString(undefined, { dateStyle: "full", timeStyle: "long" }); continue; }
        time.title = time.textContent;
        time.textContent = at.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" });
      }
    }
  };
  zoned(document);

  // --- live: the page fetches itself anew, and takes over the parts marked `data-live`

  let fetching = false, again = false, swapped = -Infinity, pressing = false;
  addEventListener("pointerdown", () => { pressing = true; }, true);
  for (const over of ["pointerup", "pointercancel"]) {
    addEventListener(over, () => setTimeout(() => { pressing = false; }, 150), true);
  }
  const typing = (part) => {
    const active = document.activeElement;
    return part.contains(active) && active.matches("input, textarea, select");
  };
  const edited = (part) => [...part.querySelectorAll("input:not([type=hidden]), textarea")].some(
    (field) => field.value !== field.defaultValue || field.checked !== field.defaultChecked);

  const take = (part, fresh) => {
    if (part.innerHTML === fresh.innerHTML && part.hidden === fresh.hidden) return;
    const open = new Set([...part.querySelectorAll("details[open][id]")].map((one) => one.id));
    const focused = part.contains(document.activeElement) ? document.activeElement.id : "";
    const link = !focused && part.contains(document.activeElement) ? document.activeElement.getAttribute("href") : "";
    for (const one of fresh.querySelectorAll("details[id]")) one.open = one.open || open.has(one.id);
    part.replaceWith(fresh);
    swapped = performance.now();
    if (focused && $(focused)) $(focused).focus();
    else if (link) [...fresh.querySelectorAll("a[href]")].find((one) => one.getAttribute("href") === link)?.focus();
  };

  const refresh = async () => {
    if (fetching) { again = true; return; }
    fetching = true;
    try {
      const answer = await fetch(location.href, { headers: { "X-Packhost-Live": "1" }, credentials: "same-origin" });
      if (new URL(answer.url).pathname.endsWith("/login")) { location.reload(); return; }
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      while (pressing) await new Promise((done) => { setTimeout(done, 50); }); // nothing moves from under a finger
      for (const part of document.querySelectorAll("[data-live][id]")) {
        const fresh = page.getElementById(part.id);
        if (fresh && !typing(part) && !edited(part)) {
          const before = part.innerHTML;
          fresh.querySelectorAll("script").forEach((one) => one.remove());
          const taken = document.adoptNode(fresh);
          zoned(taken);
          take(part, taken);
          if (taken.isConnected && before !== taken.innerHTML && !("quiet" in taken.dataset)) taken.classList.add("changed");
        }
      }
      if (page.title) document.title = page.title;
    } catch { /* the stream says when the console is back */ } finally {
      fetching = false;
      if (again) { again = false; setTimeout(refresh, 500); }
    }
  };

  const where = document.body.dataset.live, state = $("live");
  const say = (text) => { if (state && state.textContent !== text) state.textContent = text; };
  if (where && window.EventSource) {
    const stream = new EventSource(where);
    let lost = false, leaving = false; // who is on the way elsewhere is not called back
    addEventListener("beforeunload", () => { leaving = true; stream.close(); });
    stream.addEventListener("open", () => { say("live"); if (lost) refresh(); lost = false; });
    stream.addEventListener("error", () => { say("not connected"); lost = true; });
    stream.addEventListener("change", refresh);
    stream.addEventListener("end", () => { stream.close(); say("signed out"); if (!leaving) location.reload(); });
    addEventListener("pagehide", () => stream.close());
    addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });
  }

  // --- passkeys

  const bytes = (text) => Uint8Array.from(
    atob(text.replace(/-/g, "+").replace(/_/g, "/").padEnd(Math.ceil(text.length / 4) * 4, "=")), (c) => c.charCodeAt(0));
  const text = (buffer) => btoa(String.fromCharCode(...new Uint8Array(buffer)))
    .replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
  const tell = (said) => {
    const notice = document.createElement("p");
    notice.className = "notice failed";
    notice.setAttribute("role", "alert");
    notice.textContent = said;
    ($("notices") ?? $("main").querySelector("h1")).after(notice);
    notice.scrollIntoView({ block: "nearest" });
  };

  const asserted = async (asked) => {
    const answers = [];
    for (const { at, challenge } of asked.challenges) {
      const found = await navigator.credentials.get({ publicKey: {
        challenge: bytes(challenge), rpId: asked.rp_id, userVerification: "required", timeout: 60000,
        allowCredentials: asked.allow.map((id) => ({ type: "public-key", id: bytes(id) })),
      } });
      answers.push({ at, assertion: { id: found.id, response: {
        authenticatorData: text(found.response.authenticatorData),
        clientDataJSON: text(found.response.clientDataJSON), signature: text(found.response.signature),
      } } });
    }
    return answers.length ? JSON.stringify(answers) : "";
  };
  const post = async (address, body, headers = {}) => {
    const answer = await fetch(address, { method: "POST", body, headers, credentials: "same-origin" });
    const found = await answer.json();
    if (!answer.ok) throw new Error(found.error ? `${found.error}: ${found.hint}` : "the console refused");
    return found;
  };
  const created = async (form) => {
    const asked = JSON.parse(form.dataset.passkeyCreate);
    asked.challenge = bytes(asked.challenge);
    asked.user.id = bytes(asked.user.id);
    for (const one of asked.excludeCredentials) one.id = bytes(one.id);
    const made = await navigator.credentials.create({ publicKey: asked });
    form.elements.credential.value = JSON.stringify({ id: made.id, rawId: text(made.rawId), type: made.type, response: {
      attestationObject: text(made.response.attestationObject), clientDataJSON: text(made.response.clientDataJSON),
    } });
  };
  const answered = async (form, submitter) => {
    if (form.dataset.passkeyCreate) return created(form);
    if (form.dataset.passkeyLogin) {
      const asked = await post(form.dataset.passkeyLogin, new URLSearchParams());
      form.elements.nonce.value = asked.nonce;
      form.elements.passkey.value = await asserted(asked);
      return undefined;
    }
    const sent = new URLSearchParams(new FormData(form, submitter));
    const asked = await post(submitter?.hasAttribute("formaction") ? submitter.formAction : form.action, sent, { "X-Packhost-Passkey": "ask" });
    form.querySelector("[data-passkey]").value = await asserted(asked);
    return undefined;
  };
  const wantsPasskey = (form, submitter) => {
    if (submitter && "plain" in submitter.dataset) return false;
    if (form.dataset.passkeyCreate || form.dataset.passkeyLogin) return true;
    return form.querySelector("[data-passkey]") !== null && !form.elements.passphrase?.value;
  };

  // --- forms: a question first where one is wanted, a passkey where one answers, and nothing twice

  const confirmed = (question) => new Promise((done) => {
    const dialog = $("confirm");
    if (!dialog?.showModal) { done(window.confirm(question)); return; }
    $("confirm-question").textContent = question;
    dialog.returnValue = "no";
    dialog.addEventListener("close", () => done(dialog.returnValue === "yes"), { once: true });
    dialog.showModal();
  });
  const ready = new WeakSet();
  document.addEventListener("submit", async (event) => {
    const form = event.target, submitter = event.submitter;
    if (form.method === "dialog" || form.method === "get") return;
    // what has just moved under the pointer was not what the person meant to press
    if (performance.now() - swapped < SETTLES && form.closest("[data-live]")) { event.preventDefault(); return; }
    if (form.dataset.sent) { event.preventDefault(); return; }
    if (ready.has(form)) { form.dataset.sent = "1"; return; }
    const question = submitter?.dataset.confirm ?? form.dataset.confirm, passkey = wantsPasskey(form, submitter);
    if (!question && !passkey) { form.dataset.sent = "1"; return; }
    event.preventDefault();
    if (question && !(await confirmed(question))) return;
    if (submitter) submitter.disabled = true;
    try {
      if (passkey) {
        if (submitter) submitter.disabled = false; // a disabled button is not among what a form sends
        await answered(form, submitter);
      }
    } catch (error) {
      tell(error.name === "NotAllowedError" ? "the passkey did not answer" : error.message);
      return;
    } finally {
      if (submitter) submitter.disabled = false;
    }
    ready.add(form);
    form.requestSubmit(submitter);
  });
  document.addEventListener("submit", (event) => {
    const busy = event.submitter?.dataset.busy;
    if (busy && !event.defaultPrevented) { event.submitter.textContent = busy; event.submitter.setAttribute("aria-busy", "true"); }
  });
  document.addEventListener("input", (event) => {
    const choice = event.target.dataset.chooses && $(event.target.dataset.chooses);
    if (choice) choice.checked = true;
  });
  addEventListener("pageshow", () => {
    for (const form of document.forms) { delete form.dataset.sent; ready.delete(form); }
  });

  // --- the ticket comes behind the `#`, which no server and no other page is told of

  const ticket = $("ticket");
  if (ticket && location.hash.length > 20) {
    ticket.elements.ticket.value = decodeURIComponent(location.hash.slice(1));
    history.replaceState(null, "", location.pathname + location.search);
    ticket.requestSubmit();
  }

  // --- keys

  let going = false;
  const step = (by) => {
    const items = [...document.querySelectorAll("[data-item]")].filter((one) => one.getClientRects().length);
    if (!items.length) return;
    const at = items.findIndex((one) => one === document.activeElement || one.contains(document.activeElement));
    const next = items[at < 0 ? (by > 0 ? 0 : items.length - 1) : Math.min(Math.max(at + by, 0), items.length - 1)];
    (next.matches("a, button, [tabindex]") ? next : next.querySelector("a, button"))?.focus();
  };
  const press = (name, value) => {
    const found = [...document.querySelectorAll(`[data-${name}]`)].filter(
      (one) => one.dataset[name] === value && one.getClientRects().length);
    const near = found.find((one) => one.closest("[data-item]")?.contains(document.activeElement));
    const one = near ?? (name === "go" ? found[0] : null); // an answer is given where the focus is, nowhere else
    if (!one) return false;
    one.focus();
    one.click();
    return true;
  };
  $("help")?.addEventListener("click", () => $("keys").showModal());
  const on = $("keys-on");
  if (on) {
    on.checked = localStorage.getItem("keys") !== "off"; // who speaks to the computer, or types by chance, turns them off
    on.addEventListener("change", () => localStorage.setItem("keys", on.checked ? "on" : "off"));
  }
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (event.target.closest("input, textarea, select, dialog") || (on && !on.checked)) return;
    const key = event.key;
    if (going) {
      going = false;
      if (press("go", key)) event.preventDefault();
      return;
    }
    if (key === "g") { going = true; setTimeout(() => { going = false; }, 1500); }
    else if (key === "?") $("keys")?.showModal();
    else if (key === "j") step(1);
    else if (key === "k") step(-1);
    else if (key === "/") { const field = document.querySelector("[type=search]"); if (!field) return; field.focus(); }
    else if (!/^[a-z]$/.test(key) || !press("key", key)) return;
    event.preventDefault();
  });
})();

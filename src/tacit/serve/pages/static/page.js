// Previews while one types, progress of jobs, and buttons that are pressed once. Every page works without it.
"use strict";

const part = { "X-Fragment": "1" };

function put(place, html) {
  const made = new DOMParser().parseFromString(html, "text/html");
  place.replaceChildren(...made.body.childNodes);
}

// A preview half a second after the last key; an answer that comes too late is dropped.
for (const form of document.querySelectorAll("form[data-preview]")) {
  const place = form.querySelector("#preview");
  let timer, last;
  const preview = async () => {
    last?.abort();
    const mine = (last = new AbortController());
    try {
      const body = new URLSearchParams(new FormData(form));
      const answer = await fetch(form.dataset.preview, { method: "POST", body, headers: part, signal: mine.signal });
      const html = await answer.text();
      if (answer.status === 401) location.reload();
      else if (!mine.signal.aborted) put(place, html);
    } catch (error) {
      if (error.name !== "AbortError") place.textContent = "The service cannot be reached.";
    }
  };
  form.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(preview, 500);
  });
}

// Examples are put into the field of questions.
for (const list of document.querySelectorAll("[data-for]")) {
  const field = document.getElementById(list.dataset.for);
  list.hidden = false;
  list.addEventListener("click", (event) => {
    const text = event.target.dataset?.insert;
    if (!text) return;
    field.value = field.value.trimEnd() ? field.value.trimEnd() + "\n" + text : text;
    field.dispatchEvent(new Event("input", { bubbles: true }));
    field.focus();
  });
}

// A request that has not ended is looked at again, ever more seldom; only changes of its state are said.
const progress = document.querySelector("[data-watch]");
if (progress) {
  document.body.classList.add("watching");
  const said = document.getElementById("said");
  let pause = 500, state = "";
  const look = async () => {
    try {
      const answer = await fetch(progress.dataset.watch, { headers: part });
      if (answer.status === 401) return location.reload();
      if (answer.ok) {
        const busy = progress.contains(document.activeElement);
        const html = await answer.text();
        const made = new DOMParser().parseFromString(html, "text/html").querySelector("[data-state]");
        const now = made?.dataset.state ?? "";
        const ended = now !== "waiting" && now !== "running";
        if (ended || !busy) put(progress, html);
        if (now !== state) said.textContent = "The request is " + now + ".";
        state = now;
        if (ended) return document.body.classList.remove("watching");
      }
    } catch { /* the next look may reach it */ }
    pause = Math.min(3000, pause * 1.2);
    setTimeout(look, pause);
  };
  setTimeout(look, pause);
}

// A form is sent once, however often its button is pressed.
document.addEventListener("submit", (event) => {
  const form = event.target;
  if (form.dataset.sent) event.preventDefault();
  else if (form.method === "post") form.dataset.sent = "yes";
});

// A page from the browser's memory may be that of a session that has ended.
addEventListener("pageshow", (event) => {
  if (event.persisted) location.reload();
});

document.querySelector("[autofocus]")?.focus();

// Keeps a live run's page up to date: each frame has the texts of the page by name, as the server wrote them.
"use strict";

const place = document.getElementById("live");
const status_ = document.getElementById("live-status");
const source = new EventSource(place.dataset.frames);

source.onopen = () => { status_.textContent = "Live: a frame at most every ten seconds."; };
source.onmessage = (event) => {
  const frame = JSON.parse(event.data);
  for (const shown of place.querySelectorAll("[data-frame]")) {
    const text = frame[shown.dataset.frame];
    if (shown.textContent !== text) { shown.textContent = text; }
  }
  place.querySelector("progress").value = Number(frame.percent);
  if (frame.over) {
    source.close();
    status_.textContent = "The run is settled.";
  }
};
source.onerror = () => {
  if (source.readyState === EventSource.CLOSED) {
    status_.textContent = "No live frames: the session has ended, or too many pages are open. Reload the page.";
  }
};

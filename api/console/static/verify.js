// Verifies a checkpoint, an entry's inclusion (RFC 9162, 2.1.3) and that a log only grew (2.1.4), in this browser.
// It takes the log's key from the person, keeps it and the last checkpoint seen in this browser's own storage, and
// believes nothing that the service says of itself.
"use strict";

const encoder = new TextEncoder();
const unbase64 = (text) => Uint8Array.from(atob(text), (one) => one.charCodeAt(0));
const hex = (bytes) => Array.from(bytes, (one) => one.toString(16).padStart(2, "0")).join("");
const equal = (a, b) => a.length === b.length && a.every((one, place) => one === b[place]);
const join = (...parts) => {
  const whole = new Uint8Array(parts.reduce((sum, one) => sum + one.length, 0));
  let at = 0;
  for (const one of parts) { whole.set(one, at); at += one.length; }
  return whole;
};
const sha256 = async (bytes) => new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
const leafHash = (data) => sha256(join(Uint8Array.of(0), data));
const nodeHash = (left, right) => sha256(join(Uint8Array.of(1), left, right));
const size = (text) => {
  if (!/^(0|[1-9][0-9]{0,14})$/.test(text)) { throw new Error("a size of the log is no number"); }
  return Number(text);
};

// name+hex id+base64(type || key), C2SP signed-note; type 1 is Ed25519.
async function readKey(vkey) {
  const match = /^([^+\s]+)\+([0-9a-f]{8})\+([A-Za-z0-9+/=]+)$/.exec(vkey.trim());
  if (!match) { throw new Error("the key must be name+id+key, as its operator published it"); }
  const raw = unbase64(match[3]);
  const id = (await sha256(join(encoder.encode(match[1] + "\n"), raw))).slice(0, 4);
  if (raw.length !== 33 || raw[0] !== 1 || hex(id) !== match[2]) { throw new Error("the key is not one under its own id"); }
  return { name: match[1], id, key: await crypto.subtle.importKey("raw", raw.slice(1), "Ed25519", false, ["verify"]) };
}

async function openNote(note, key) {
  const end = note.indexOf("\n\n");
  if (end < 0) { throw new Error("the checkpoint is no signed note"); }
  const text = note.slice(0, end + 1);
  const lines = text.split("\n");
  if (lines[0] !== key.name) { throw new Error("the checkpoint is of another log than the key"); }
  for (const line of note.slice(end + 2).split("\n")) {
    const words = line.split(" ");
    if (words[0] !== "—" || words[1] !== key.name) { continue; }
    const signature = unbase64(words[2]);
    if (!equal(signature.slice(0, 4), key.id)) { continue; }
    if (await crypto.subtle.verify("Ed25519", key.key, signature.slice(4), encoder.encode(text))) {
      return { size: size(lines[1]), root: unbase64(lines[2]) };
    }
  }
  throw new Error("the key that you pinned did not sign this checkpoint");
}

async function rootOfInclusion(index, count, hash, proof) {
  let at = index, last = count - 1, root = hash;
  const steps = [];
  for (const sibling of proof) {
    if (last === 0) { throw new Error("the proof is too long"); }
    if (at % 2 === 1 || at === last) {
      root = await nodeHash(sibling, root);
      steps.push({ left: true, hash: sibling, root });
      while (at % 2 === 0 && at !== 0) { at = Math.floor(at / 2); last = Math.floor(last / 2); }
    } else {
      root = await nodeHash(root, sibling);
      steps.push({ left: false, hash: sibling, root });
    }
    at = Math.floor(at / 2); last = Math.floor(last / 2);
  }
  if (last !== 0) { throw new Error("the proof is too short"); }
  return { root, steps };
}

async function checkConsistency(old, fresh, proof) {
  const steps = [];
  if (old.size === fresh.size) {
    if (proof.length || !equal(old.root, fresh.root)) { throw new Error("two histories of one size: the log has forked"); }
    return steps;
  }
  const power = Math.log2(old.size) % 1 === 0;
  const path = power ? [old.root, ...proof] : proof;
  if (!path.length) { throw new Error("the proof is empty"); }
  let at = old.size - 1, last = fresh.size - 1;
  while (at % 2 === 1) { at = Math.floor(at / 2); last = Math.floor(last / 2); }
  let first = path[0], second = path[0];
  for (const one of path.slice(1)) {
    if (last === 0) { throw new Error("the proof is too long"); }
    if (at % 2 === 1 || at === last) {
      first = await nodeHash(one, first);
      second = await nodeHash(one, second);
      steps.push({ left: true, hash: one, root: second, old: true, from: path[0] });
      while (at % 2 === 0 && at !== 0) { at = Math.floor(at / 2); last = Math.floor(last / 2); }
    } else {
      second = await nodeHash(second, one);
      steps.push({ left: false, hash: one, root: second, from: path[0] });
    }
    at = Math.floor(at / 2); last = Math.floor(last / 2);
  }
  if (last !== 0 || !equal(first, old.root) || !equal(second, fresh.root)) {
    throw new Error("the log does not go on from what this browser saw: history was rewritten");
  }
  return steps;
}

const shape = (name, attributes, ...inside) => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) { made.setAttribute(key, value); }
  made.append(...inside);
  return made;
};

// A proof as a picture, and the same as a list: from below upwards, each hash of the proof joins what was computed, on its
// side, until the root. Of a consistency proof, what the older log had already has a full line, what came since a broken one.
function drawProof(begin, hash, end, steps) {
  const row = 56, wide = 560, middle = wide / 2, height = 40 + row * steps.length + 30;
  const box = (x, y, words, kind) => [
    shape("rect", { x: x - 84, y, width: 168, height: 30, rx: 4, class: kind }),
    shape("text", { x, y: y + 20, "text-anchor": "middle" }, words),
  ];
  const short = (hash) => hex(hash).slice(0, 12) + "…";
  const parts = [], words = [begin + ": " + hex(hash)];
  let below = height - 36;
  parts.push(...box(middle, below, begin, "node chosen"));
  for (const [place, one] of steps.entries()) {
    const above = below - row, x = one.left ? 92 : wide - 92, last = place === steps.length - 1;
    const kind = steps.some((step) => step.old) && !one.old ? "arrow cut" : "arrow";
    parts.push(
      shape("path", { d: "M" + middle + " " + below + "V" + (above + 30), class: "arrow" }),
      shape("path", { d: "M" + x + " " + below + "L" + middle + " " + (above + 30), class: kind }),
      ...box(x, below, short(one.hash), "node"), ...box(middle, above, last ? end : short(one.root), last ? "node chosen" : "node"),
    );
    words.push("with " + hex(one.hash) + (one.left ? " on its left" : " on its right") + ": " + hex(one.root));
    below = above;
  }
  const title = "From " + begin + " by " + steps.length + " hashes to " + end + "; the list below has each";
  document.getElementById("drawn").replaceChildren(
    shape("svg", { viewBox: "0 0 " + wide + " " + height, role: "img", "aria-label": title }, shape("title", {}, title), ...parts));
  const list = document.getElementById("proof");
  list.replaceChildren(...words.map((one) => Object.assign(document.createElement("li"), { textContent: one })));
  document.getElementById("drawing").hidden = false;
}

const kept = {
  read: (name) => { try { return JSON.parse(localStorage.getItem(name)); } catch { return null; } },
  write: (name, value) => { try { localStorage.setItem(name, JSON.stringify(value)); } catch { /* a private window */ } },
};
const unbase64url = (text) => unbase64(text.replace(/-/g, "+").replace(/_/g, "/") + "=".repeat((4 - (text.length % 4)) % 4));

async function verifyCheckpoint(section, vkey) {
  const key = await readKey(vkey);
  const note = await (await fetch(section.dataset.checkpoint, { cache: "no-store" })).text();
  const fresh = await openNote(note, key);
  const name = "epsilon-checkpoint " + vkey;
  const before = kept.read(name);
  let words = "the key that you pinned signed it; this browser saw this log for the first time";
  document.getElementById("drawing").hidden = true;
  if (before) {
    const old = { size: before.size, root: Uint8Array.from(before.root) };
    if (old.size > fresh.size) { throw new Error("the log is shorter than this browser has seen it: an older copy is served"); }
    if (old.size > 0) {
      const answer = await (await fetch(section.dataset.consistency + old.size + "?new=" + fresh.size, { cache: "no-store" })).json();
      const steps = await checkConsistency(old, fresh, answer.proof.map(unbase64url));
      if (steps.length) { drawProof("of the " + old.size + " seen before", steps[0].from, "root of " + fresh.size + " entries", steps); }
    }
    words = "the key that you pinned signed it, and it goes on from the " + old.size + " entries that this browser saw before";
  }
  kept.write(name, { size: fresh.size, root: Array.from(fresh.root) });
  return "a checkpoint of " + fresh.size + " entries: " + words + ".";
}

async function verifyInclusion(section, vkey) {
  const key = await readKey(vkey);
  const text = document.getElementById("receipt").textContent;
  const gap = text.indexOf("\n\n");
  const lines = text.slice(0, gap).split("\n");
  const index = size((/^index (.*)$/.exec(lines[1]) || [])[1] || "");
  if (index !== size(section.dataset.index)) { throw new Error("the receipt is of another entry"); }
  const data = new Uint8Array(await (await fetch(section.dataset.bytes, { cache: "no-store" })).arrayBuffer());
  const checkpoint = await openNote(text.slice(gap + 2), key);
  if (index >= checkpoint.size) { throw new Error("the checkpoint is older than the entry"); }
  const leaf = await leafHash(data);
  const found = await rootOfInclusion(index, checkpoint.size, leaf, lines.slice(2).map(unbase64));
  if (!equal(found.root, checkpoint.root)) { throw new Error("the entry's bytes are not in this log"); }
  drawProof("entry " + index, leaf, "root of " + checkpoint.size + " entries", found.steps);
  return "these " + data.length + " bytes are entry " + index + " of the " + checkpoint.size + " under a checkpoint that your key signed.";
}

async function show(section, vkey) {
  const verdict = document.getElementById("verdict");
  verdict.textContent = "Verifying.";
  verdict.className = "";
  try {
    const words = await (section.id === "inclusion" ? verifyInclusion : verifyCheckpoint)(section, vkey.trim());
    kept.write("epsilon-vkey " + location.host, vkey.trim());
    verdict.textContent = "✓ Verified: " + words;
    verdict.className = "passed";
  } catch (error) {
    verdict.textContent = "✗ Not verified: " + error.message;
    verdict.className = "failed";
  }
}

addEventListener("DOMContentLoaded", () => {
  const section = document.querySelector("section.verify"), form = document.getElementById("pin");
  if (!section || !form || !window.crypto || !crypto.subtle) { return; }
  form.elements.vkey.value = kept.read("epsilon-vkey " + location.host) || "";
  form.addEventListener("submit", (event) => { event.preventDefault(); show(section, form.elements.vkey.value); });
});

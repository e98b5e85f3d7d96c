// Sign a call in JavaScript or TypeScript: node sign.mjs KEY.pem URL ID < command.json > signature.txt
import { createHash, createPrivateKey, createPublicKey, sign as signBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const base64url = (data) => Buffer.from(data).toString("base64url");

export function sign(key, body, method, url, id, now) {
  const { x } = createPublicKey(key).export({ format: "jwk" });
  const kid = createHash("sha256").update(`{"crv":"Ed25519","kty":"OKP","x":"${x}"}`).digest("base64url");
  const header = { alg: "Ed25519", b64: false, crit: ["b64"], htm: method, htu: url, iat: now, jti: id, kid };
  const protectedHeader = base64url(JSON.stringify(header));
  const input = Buffer.concat([Buffer.from(`${protectedHeader}.`), Buffer.from(body)]);
  return `${protectedHeader}..${base64url(signBytes(null, input, key))}`;
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) {
  const [file, url, id, now] = process.argv.slice(2);
  const key = createPrivateKey(readFileSync(file));
  console.log(sign(key, readFileSync(0), "POST", url, id, Number(now ?? Math.floor(Date.now() / 1000))));
}

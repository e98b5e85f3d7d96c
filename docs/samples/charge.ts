// Makes signed charges with the types that openapi-typescript generated, and openapi-fetch:
// node charge.js URL KEY.pem BODY.json ID, with the token in TOKEN. Prints what charge.py prints.
import { createPrivateKey } from "node:crypto";
import { readFileSync } from "node:fs";
import canonicalize from "canonicalize";
import createClient, { type Middleware } from "openapi-fetch";
import type { components, paths } from "./ledger.js";
import { sign } from "./sign.mjs";

const [url, keyFile, bodyFile, id] = process.argv.slice(2) as [string, string, string, string];
const key = createPrivateKey(readFileSync(keyFile));

const signed: Middleware = {
  async onRequest({ request }) {
    if (request.method !== "POST") return undefined;
    const body = await request.text();
    const address = new URL(request.url);
    const now = Math.floor(Date.now() / 1000);
    const headers = new Headers(request.headers);
    headers.set("x-jws-signature", sign(key, body, "POST", address.origin + address.pathname, JSON.parse(body).id, now));
    return new Request(request.url, { method: "POST", headers, body });
  },
};

const client = createClient<paths>({
  baseUrl: url,
  headers: { authorization: `Bearer ${process.env.TOKEN}` },
  // What is signed is spelled by RFC 8785.
  bodySerializer: (body) => canonicalize(body) as string,
});
client.use(signed);

type ChargeCommand = components["schemas"]["ChargeCommand"];
const command: ChargeCommand = { ...JSON.parse(readFileSync(bodyFile, "utf8")), id };
const params = { header: { "x-jws-signature": "" } };

const quoted = await client.POST("/v1/quotes", { params, body: command });
const made = await client.POST("/v1/charges", { params, body: command });
const again = await client.POST("/v1/charges", { params, body: command });
const read = await client.GET("/v1/charges/{id}", { params: { path: { id } } });
const listed = await client.GET("/v1/charges", { params: { query: { state: "pending", limit: 200 } } });
const late: ChargeCommand = { ...command, body: { ...command.body, deadline: 1 } };
const refused = await client.POST("/v1/charges", { params, body: late });

console.log(
  JSON.stringify({
    quoted: quoted.data?.outcome,
    statuses: [made.response.status, again.response.status],
    state: read.data?.state,
    listed: listed.data?.items.some((one) => one.id === id),
    refused: refused.error?.code,
  }),
);

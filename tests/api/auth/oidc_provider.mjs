// A certified OpenID provider (npm: oidc-provider) as an organisation may run one: machines by private_key_jwt, people by
// authorization code with PKCE, access tokens of RFC 9068. What it is to be comes as JSON on the command line.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [folder, said] = process.argv.slice(2);
const place = createRequire(`${folder}/package.json`).resolve("oidc-provider");
const { default: Provider } = await import(pathToFileURL(place));
const { issuer, port, audience, algorithm, machine, keys, person } = JSON.parse(said);

const provider = new Provider(issuer, {
  clients: [
    {
      client_id: machine.client_id,
      grant_types: ["client_credentials"],
      jwks: { keys: [machine.key] },
      redirect_uris: [],
      response_types: [],
      token_endpoint_auth_method: "private_key_jwt",
      token_endpoint_auth_signing_alg: algorithm,
    },
    {
      application_type: "native",
      client_id: "epsilon",
      grant_types: ["authorization_code"],
      redirect_uris: ["http://127.0.0.1/callback"],
      response_types: ["code"],
      token_endpoint_auth_method: "none",
    },
  ],
  enabledJWA: { clientAuthSigningAlgValues: [algorithm] },
  extraTokenClaims: async (_, token) => (token.accountId === undefined ? {} : person.claims),
  features: {
    clientCredentials: { enabled: true },
    devInteractions: { enabled: true },
    resourceIndicators: {
      defaultResource: async () => "urn:epsilon:ledger",
      enabled: true,
      getResourceServerInfo: async () => ({
        accessTokenFormat: "jwt",
        accessTokenTTL: 300,
        audience,
        jwt: { sign: { alg: "RS256" } },
        scope: "",
      }),
      useGrantedResource: async () => true,
    },
  },
  findAccount: async (_, id) => ({ accountId: id, claims: async () => ({ sub: id }) }),
  // Whoever logs in has consented.
  loadExistingGrant: async (context) => {
    const grant = new provider.Grant({
      accountId: context.oidc.session.accountId,
      clientId: context.oidc.client.clientId,
    });
    grant.addOIDCScope("openid");
    await grant.save();
    return grant;
  },
  jwks: { keys },
  // Where Keycloak has them: nothing but the metadata says so.
  routes: {
    authorization: "/protocol/openid-connect/auth",
    jwks: "/protocol/openid-connect/certs",
    token: "/protocol/openid-connect/token",
  },
  scopes: ["openid", "ledger.read"],
  ttl: { AccessToken: 300, ClientCredentials: 300 },
});
provider.listen(port, "127.0.0.1", () => console.log("listening"));

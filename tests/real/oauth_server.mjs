// An authorization server (oidc-provider) on loopback: it registers any client, and lets in whoever says a name.
// node oauth_server.mjs PORT PARTS   PARTS is the folder whose node_modules hold oidc-provider
import { createHash, generateKeyPairSync } from "node:crypto";
import { pathToFileURL } from "node:url";

const [port, parts] = process.argv.slice(2);
const { default: Provider } = await import(
  pathToFileURL(`${parts}/node_modules/oidc-provider/lib/index.js`).href
);

function key(algorithm, kind, options) {
  const { privateKey } = generateKeyPairSync(kind, options);
  const jwk = privateKey.export({ format: "jwk" });
  const kid = createHash("sha256").update(JSON.stringify(jwk)).digest("hex").slice(0, 16);
  return { ...jwk, alg: algorithm, use: "sig", kid };
}

const scopes = "mcp tools:read runs:read runs:write approvals:read audit:read";
const provider = new Provider(`http://127.0.0.1:${port}`, {
  jwks: { keys: [key("RS256", "rsa", { modulusLength: 2048 }), key("ES256", "ec", { namedCurve: "P-256" })] },
  cookies: { keys: ["only for tests"] },
  scopes: ["openid", "offline_access", ...scopes.split(" ")],
  clients: [
    {
      client_id: "nightly",
      client_secret: "only-for-tests",
      grant_types: ["client_credentials"],
      redirect_uris: [],
      response_types: [],
    },
  ],
  features: {
    devInteractions: { enabled: true },
    registration: { enabled: true },
    clientCredentials: { enabled: true },
    resourceIndicators: {
      enabled: true,
      defaultResource: (_, client, given) => given,
      useGrantedResource: () => true,
      getResourceServerInfo: (_, resource) => ({
        scope: scopes,
        audience: resource,
        accessTokenFormat: "jwt",
        accessTokenTTL: 300,
        jwt: { sign: { alg: "ES256" } },
      }),
    },
  },
  extraTokenClaims: (_, token) => ({ groups: token.accountId === "ann" ? ["masters"] : ["crew"] }),
  issueRefreshToken: (_, client) => client.grantTypeAllowed("refresh_token"),
  clientBasedCORS: () => false,
});
provider.on("server_error", (_, error) => console.error(error));
provider.listen(Number(port), "127.0.0.1", () => console.log("listening"));

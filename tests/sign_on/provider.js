// A provider of the npm package `oidc-provider` for the tests. The hint of a login is the person's claims, in
// base64url: naming them is enough to sign in as that person. The provider prints its issuer when it listens,
// and ends when its standard input does.

const http = require("node:http");
const { Provider } = require("oidc-provider");

// Its standard output is for the issuer alone.
console.info = () => {};

const [redirectUri, clientId, clientSecret] = process.argv.slice(2);
// The claims of every person who has signed in, by their subjects.
const people = new Map();

let handle;
const server = http.createServer((request, response) => handle(request, response));
server.listen(0, "127.0.0.1", () => {
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const provider = new Provider(issuer, {
    clients: [{ client_id: clientId, client_secret: clientSecret, redirect_uris: [redirectUri] }],
    claims: { openid: ["sub"], email: ["email", "email_verified"], profile: ["name", "preferred_username", "groups"] },
    conformIdTokenClaims: false,
    features: { devInteractions: { enabled: false } },
    findAccount: (_, id) => ({ accountId: id, claims: () => people.get(id) }),
    interactions: { url: (_, interaction) => `/interaction/${interaction.uid}` },
    pkce: { required: () => true },
  });
  const answer = provider.callback();
  handle = async (request, response) => {
    if (!request.url.startsWith("/interaction/")) {
      return answer(request, response);
    }
    const { params } = await provider.interactionDetails(request, response);
    const claims = JSON.parse(Buffer.from(params.login_hint, "base64url").toString());
    people.set(claims.sub, claims);
    const grant = new provider.Grant({ accountId: claims.sub, clientId: params.client_id });
    grant.addOIDCScope(params.scope);
    const result = { login: { accountId: claims.sub }, consent: { grantId: await grant.save() } };
    return provider.interactionFinished(request, response, result);
  };
  console.log(issuer);
});
process.stdin.resume().on("end", () => process.exit(0));

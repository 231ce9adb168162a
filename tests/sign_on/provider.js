// A provider of the npm package `oidc-provider` for the tests. The login hint contains the user's claims in
// base64url, which is enough to sign in as this user. The provider prints its issuer once it listens, and exits
// when its standard input is closed.

const http = require("node:http");
const { Provider } = require("oidc-provider");

// The standard output must contain only the issuer.
console.info = () => {};

const [redirectUri, clientId, clientSecret] = process.argv.slice(2);
// The claims of every user who has signed in, by subject.
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

// Follows the steps of the README and then uses the other operations, with the client that `@hey-api/openapi-ts`
// generated from the server's OpenAPI document.
//
// The only argument is a JSON object with the URLs of both listeners, the service token, and the folder of e-mails.
// Prints "all good", or fails. `tsc --strict` checks this file together with the client.

import * as api from "./tollkeeper-client";
import { createClient, type Client } from "./tollkeeper-client/client";

// The parts of Node that this file uses. Node's own types are in another package.
declare const process: { argv: string[]; exitCode?: number };
declare const require: (name: "node:fs") => {
  existsSync(path: string): boolean;
  readdirSync(folder: string): string[];
  readFileSync(path: string, encoding: "utf8"): string;
  statSync(path: string): { mtimeMs: number };
};
const files = require("node:fs");

interface Setup {
  public: string;
  service: string;
  service_token: string;
  mails: string;
}
const setup: Setup = JSON.parse(process.argv[2] ?? "");
const [password, otherPassword, thirdPassword] = ["Analytical-Engine-1843", "Violet-Kettle-Orbit-9", "Copper-Harbor-Lantern-52"];

function check(holds: boolean, about: unknown): asserts holds {
  if (!holds) throw new Error(JSON.stringify(about));
}

function equal<T>(found: T, due: T): void {
  check(JSON.stringify(found) === JSON.stringify(due), { found, due });
}

/** Returns an answer that must be a success. */
function done<D, E>(answer: { data: D; error: undefined } | { data: undefined; error: E }): D {
  if (answer.data === undefined) throw new Error(`a success was due: ${JSON.stringify(answer.error)}`);
  return answer.data;
}

/** Returns the error of an answer that must be a refusal with this status and code. */
function refused(answer: { error?: api.EnvelopedError; response: Response }, status: number, code: api.ErrorCode): api.Error {
  const error = answer.error?.error;
  check(error !== undefined && answer.response.status === status && error.code === code, answer.error);
  return error;
}

function client(baseUrl: string, token?: string): Client {
  return createClient(token === undefined ? { baseUrl } : { baseUrl, auth: token });
}

/** Returns the token of the newest link to a page in the e-mails to an address. */
async function mailedLink(address: string, page: string): Promise<string> {
  for (let attempt = 0; attempt < 400; attempt++) {
    const names = files.existsSync(setup.mails) ? files.readdirSync(setup.mails) : [];
    const paths = names.filter((name) => name.endsWith(".eml")).map((name) => `${setup.mails}/${name}`);
    paths.sort((one, other) => files.statSync(other).mtimeMs - files.statSync(one).mtimeMs);
    for (const path of paths) {
      const text = files.readFileSync(path, "utf8");
      const link = text.split("\n").find((line) => line.startsWith(`${setup.public}/${page}`));
      const token = link?.match(/token=([A-Za-z0-9_-]{43})\s*$/)?.[1];
      if (token !== undefined && text.split("\n").some((line) => line.startsWith("To: ") && line.includes(address))) return token;
    }
    await new Promise((resolve) => setTimeout(resolve, 25));
  }
  throw new Error(`no mail to ${address} came`);
}

async function logIn(name: string, password: string): Promise<Client> {
  const { data } = done(await api.login({ client: anyone, body: { email: `${name}@example.com`, password } }));
  equal([data.token_type, data.user.username], ["Bearer", name]);
  const refreshed = done(await api.refreshToken({ client: client(setup.public, data.refresh_token) }));
  return client(setup.public, refreshed.data.access_token);
}

/** Registers an account, verifies it with the link in the e-mail, and logs in. */
async function signUp(name: string): Promise<Client> {
  const email = `${name}@example.com`;
  const { data } = done(await api.register({ client: anyone, body: { email, password, username: name } }));
  check(data.verification_email_sent && data.user.full_name === null && Date.parse(data.user.created_at) > 0, data);
  const token = await mailedLink(email, "verify-email");
  check(done(await api.getVerifyEmailPage({ client: anyone, query: { token } })).includes("<form"), "the page");
  const verified = done(await api.verifyEmail({ client: anyone, body: { token } })).data;
  equal([verified.verified, verified.email], [true, email]);
  return logIn(name, password);
}

const anyone = client(setup.public);

async function accounts(): Promise<Client> {
  equal(done(await api.getHealth({ client: anyone })).status, "ok");
  check(done(await api.getReadiness({ client: anyone })).checks.every((one) => one.ok), "ready");
  equal(done(await api.getSigningKeys({ client: anyone })).keys.map((key) => key.alg), ["EdDSA"]);
  const ada = await signUp("ada");
  check(done(await api.getMe({ client: ada })).data.user.email_verified, "verified");
  const me = done(await api.updateMe({ client: ada, body: { full_name: "Ada Lovelace" } })).data.user;
  equal([me.full_name, me.phone], ["Ada Lovelace", null]);
  await logIn("ada", password);
  const sessions = done(await api.listSessions({ client: ada, query: { page_size: 10 } })).data;
  equal(sessions.sessions.map((session) => session.current), [false, true]);
  const [other] = sessions.sessions;
  check(other !== undefined, sessions);
  done(await api.deleteSession({ client: ada, path: { session_id: other.id } }));
  equal(done(await api.listSessions({ client: ada })).data.total, 1);
  const change = { current_password: password, new_password: otherPassword, new_password_confirmation: otherPassword };
  done(await api.changePassword({ client: ada, body: change }));
  done(await api.forgotPassword({ client: anyone, body: { email: "ada@example.com" } }));
  const token = await mailedLink("ada@example.com", "reset-password");
  done(await api.resetPassword({ client: anyone, body: { token, password: thirdPassword, password_confirmation: thirdPassword } }));
  return logIn("ada", thirdPassword);
}

async function organization(ada: Client): Promise<{ organization_id: string }> {
  const key = { "Idempotency-Key": "acme-1" };
  const created = done(await api.createOrganization({ client: ada, headers: key, body: { name: "Acme" } })).data;
  const repeated = await api.createOrganization({ client: ada, headers: key, body: { name: "Acme" } });
  equal([repeated.response.headers.get("idempotency-replayed"), done(repeated).data.id], ["true", created.id]);
  const other = await api.createOrganization({ client: ada, headers: key, body: { name: "Other" } });
  refused(other, 409, "idempotency_key_reused");
  equal([created.owner.username, created.settings.default_role], ["ada", "member"]);
  // The error for a second organization with the same name.
  const error = refused(await api.createOrganization({ client: ada, body: { name: "Acme" } }), 409, "name_taken");
  equal([error.type, error.param, error.details[0]?.param], ["invalid_request_error", "name", "name"]);
  const found = done(await api.listOrganizations({ client: ada, query: { search: "acm" } })).data.organizations;
  equal(found.map((one) => one.name), ["Acme"]);
  const path = { organization_id: created.id };
  // An update that requires a version.
  const version = (await api.getOrganization({ client: ada, path })).response.headers.get("etag") ?? "";
  const headers = { "If-Match": version };
  const body = { description: "Engines", settings: { allow_public_projects: true } };
  equal(done(await api.updateOrganization({ client: ada, path, headers, body })).data.description, "Engines");
  refused(await api.updateOrganization({ client: ada, path, headers, body: { name: "Acme 2" } }), 412, "precondition_failed");
  return path;
}

async function project(ada: Client, path: { organization_id: string }): Promise<{ organization_id: string; project_id: string }> {
  const body: api.CreateProjectRequest = { name: "Shop", settings: { model: "svc-1", temperature: 0.5 } };
  const created = done(await api.createProject({ client: ada, path, body })).data;
  equal([created.settings.model, created.settings.temperature, created.visibility], ["svc-1", 0.5, "private"]);
  const at = { ...path, project_id: created.id };
  done(await api.updateProject({ client: ada, path: at, body: { visibility: "public" } }));
  const [listed] = done(await api.listProjects({ client: ada, path })).data.projects;
  equal([listed?.visibility, listed?.role], ["public", "owner"]);
  return at;
}

async function members(ada: Client, path: { organization_id: string; project_id: string }): Promise<void> {
  const body: api.CreateInvitationRequest = { email: "bob@example.com", role: "admin", message: "Welcome" };
  const first = done(await api.createInvitation({ client: ada, path, body })).data;
  refused(await api.createInvitation({ client: ada, path, body }), 409, "already_invited");
  done(await api.deleteInvitation({ client: ada, path: { ...path, invitation_id: first.invitation_id } }));
  const second = done(await api.createInvitation({ client: ada, path, body })).data;
  const resent = done(await api.resendInvitation({ client: ada, path: { ...path, invitation_id: second.invitation_id } })).data;
  equal(resent.status, "pending");
  const pending = done(await api.listInvitations({ client: ada, path, query: { status: "pending" } })).data.invitations;
  equal(pending.map((one) => [one.email, one.role, one.invited_by.username]), [["bob@example.com", "admin", "ada"]]);
  const bob = await signUp("bob");
  const admins = done(await api.listOrganizationMembers({ client: bob, path, query: { role: "admin" } })).data.members;
  equal(admins.map((member) => member.username), ["bob"]);
  const at = { ...path, member_id: admins[0]?.id ?? "" };
  equal(done(await api.updateOrganizationMember({ client: ada, path: at, body: { role: "member" } })).data.role, "member");
  done(await api.createProjectMember({ client: ada, path, body: { user_id: at.member_id, role: "viewer" } }));
  equal(done(await api.updateProjectMember({ client: ada, path: at, body: { role: "developer" } })).data.role, "developer");
  const developers = done(await api.listProjectMembers({ client: ada, path, query: { role: "developer" } })).data.members;
  equal(developers.map((member) => member.email), ["bob@example.com"]);
  done(await api.deleteProjectMember({ client: ada, path: at }));
  done(await api.deleteOrganizationMember({ client: bob, path: at }));
  done(await api.logout({ client: bob }));
  refused(await api.getMe({ client: bob }), 401, "invalid_access_token");
}

async function apiKey(ada: Client, path: { organization_id: string; project_id: string }): Promise<{ key_id: string; secret: string }> {
  const body: api.CreateApiKeyRequest = {
    name: "Checkout",
    permissions: ["chat", "models"],
    expires_at: new Date(Date.now() + 30 * 86_400_000).toISOString(),
    restrictions: { rate_limit: 600, models: ["svc-1"] },
  };
  const key = done(await api.createApiKey({ client: ada, path, body })).data;
  equal([key.restrictions.rate_limit, key.restrictions.max_tokens, key.expires_at], [600, null, body.expires_at ?? null]);
  const at = { ...path, key_id: key.id };
  equal(done(await api.listApiKeys({ client: ada, path, query: { status: "active" } })).data.api_keys.map((one) => one.name), ["Checkout"]);
  equal(done(await api.updateApiKey({ client: ada, path: at, body: { description: "Of the shop" } })).data.description, "Of the shop");
  const rotated = done(await api.rotateApiKey({ client: ada, path: at, body: { grace_seconds: 600 } })).data;
  check(rotated.key !== key.key && rotated.grace_period_ends > rotated.rotation_date, rotated);
  equal(done(await api.endApiKeyRotation({ client: ada, path: at })).data.id, key.id);
  refused(await api.endApiKeyRotation({ client: ada, path: at }), 409, "no_rotation_pending");
  return { key_id: key.id, secret: rotated.key };
}

async function calls(path: { organization_id: string; project_id: string }, key_id: string, secret: string): Promise<void> {
  const program = client(setup.public, secret);
  equal(done(await api.listModels({ client: program })).data.map((model) => model.id), ["svc-1"]);
  const model = done(await api.getModel({ client: program, path: { model_id: "svc-1" } }));
  check("stream" in model.capabilities && model.capabilities.stream && model.pricing?.prompt_tokens === 0.000002, model);
  const messages = [{ role: "user", content: "Who are you?" }];
  done(await api.createChatCompletion({ client: program, body: { model: "svc-1", messages } }));
  const lacking = await api.createChatCompletion({ client: program, body: { model: "none", messages } });
  equal([lacking.response.status, lacking.error?.error.code], [404, "model_not_found"]);
  const message = await api.createMessage({ client: program, body: { model: "none", messages, max_tokens: 10 } });
  equal([message.error?.type, message.error?.error.type], ["error", "not_found_error"]);
  // The price of the chat.
  const [row] = done(await api.getProjectUsage({ client: program, path })).data.usage;
  equal([row?.chat.requests, row?.chat.tokens.prompt, row?.chat.tokens.completion, row?.chat.amount], [1, 3, 42, 0.000258]);
  equal([row?.date, row?.api_key_id], [new Date().toISOString().slice(0, 10), key_id]);
}

async function inferenceServer(key_id: string, credential: string): Promise<void> {
  const service = client(setup.service, setup.service_token);
  const question: api.AuthorizeRequest = { credential, operation: "chat", model: "svc-1", max_tokens: 1000 };
  const givenBack = done(await api.authorize({ client: service, body: question })).reservation;
  check(givenBack !== null, "reserved");
  const at = { reservation_id: givenBack.id };
  equal(done(await api.extendReservation({ client: service, path: at })).id, givenBack.id);
  check(done(await api.deleteReservation({ client: service, path: at })).released, "released");
  const decision = done(await api.authorize({ client: service, body: question }));
  equal([decision.allowed, decision.api_key_id, decision.limits.api_key?.limit_requests], [true, key_id, 600]);
  const event: api.UsageEvent = {
    id: "call-1",
    source: "vllm-1",
    time: new Date().toISOString(),
    kind: "chat",
    model: "svc-1",
    prompt_tokens: 1234,
    completion_tokens: 567,
    api_key_id: key_id,
    reservation_id: decision.reservation?.id ?? null,
  };
  for (const status of ["accepted", "duplicate"] as const) {
    const { results } = done(await api.reportUsage({ client: service, body: { events: [event] } }));
    equal(results.map((result) => [result.id, result.status, result.code]), [["call-1", status, null]]);
  }
  check(done(await api.getMetrics({ client: service })).includes("tollkeeper_"), "metrics");
}

async function money(ada: Client, path: { organization_id: string; project_id: string; key_id: string }): Promise<void> {
  const report = done(await api.getOrganizationUsage({ client: ada, path, query: { group_by: "month,model" } })).data;
  equal(report.usage.map((row) => [row.model, row.chat.amount]), [["svc-1", 0.006128]]);
  equal([report.total.chat.requests, report.total.embeddings.requests], [2, 0]);
  const summary = done(await api.getBillingSummary({ client: ada, path })).data;
  equal([summary.current_period.total_amount, summary.balance.reserved, summary.payment_method], [0.006128, 0, null]);
  equal(done(await api.listInvoices({ client: ada, path, query: { status: "open" } })).data.total, 0);
  equal(done(await api.listCredits({ client: ada, path })).data.page, 1);
  const moved = done(await api.listMovements({ client: ada, path, query: { start_date: "2026-01-01" } }));
  const sum = moved.data.movements.reduce((sum, movement) => sum + movement.amount, 0);
  equal(sum.toFixed(9), summary.balance.available.toFixed(9));
  const headers = { accept: "text/csv" };
  // The generated client has only the JSON type of this answer, which can also be a file.
  const file: unknown = done(await api.listMovements({ client: ada, path, headers, parseAs: "text" }));
  check(typeof file === "string" && file.startsWith("id,time,kind,amount,currency,reference\r\n"), file);
  const limits = done(await api.getOrganizationLimits({ client: ada, path })).data;
  equal(limits.balance, summary.balance);
  check(limits.models.some((model) => model.id === "svc-1" && model.max_tokens > 0), limits);
  const prices = done(await api.getPricing({ client: ada })).data.models["svc-1"];
  check(prices !== undefined && "chat" in prices && prices.chat.completion_tokens === 0.000006, prices);
  const totals = done(await api.getProject({ client: ada, path })).data.usage;
  equal([totals.requests, totals.tokens], [2, 1846]);
  equal(done(await api.getApiKey({ client: ada, path })).data.usage.total_requests, 2);
  const log = done(await api.listAuditLog({ client: ada, path, query: { action: "api_key.rotated" } })).data.entries;
  equal(log.map((entry) => [entry.target, entry.actor.username]), [[path.key_id, "ada"]]);
}

async function journey(): Promise<void> {
  const ada = await accounts();
  const path = await project(ada, await organization(ada));
  await members(ada, path);
  const { key_id, secret } = await apiKey(ada, path);
  await calls(path, key_id, secret);
  await inferenceServer(key_id, secret);
  await money(ada, { ...path, key_id });
  done(await api.deleteApiKey({ client: ada, path: { ...path, key_id } }));
  refused(await api.getApiKey({ client: ada, path: { ...path, key_id } }), 404, "api_key_not_found");
  done(await api.deleteProject({ client: ada, path }));
  done(await api.deleteSessions({ client: ada }));
  console.log("all good");
}

journey().catch((error: unknown) => {
  console.error(error);
  process.exitCode = 1;
});

/**
 * Sends the example requests of the OpenAPI document to a server, and compares status, headers and
 * body with the document. The clock of a server starts at the time of the examples, and is slow, so
 * that its minute does not end. Random ids, addresses and the milliseconds since the start of the
 * server differ.
 */

import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type ParsedResponse, sendRequest } from '../../support/http.ts';
import {
  contentOf,
  DOCUMENTED_OPERATIONS,
  type DocumentedOperation,
  faultsIn,
  headersOf,
  type RequestParts,
  requestExamples,
  responseExamples,
  responseOf,
} from '../../support/openapi.ts';
import { callOperationOk, type Fields, type Operation } from '../../support/operations.ts';
import { type PolicySettings, writeConfig } from '../../support/policy-config.ts';
import {
  freePort,
  ROOT_KEY,
  removeDirectory,
  type ServerProcess,
  startServer,
  temporaryDirectory,
} from '../../support/server.ts';

/** The begin of the window that ends at the `reset` of the examples. */
const START_MS = 1_795_179_540_000;
const MINUTE_MS = 60_000;
const END_MS = 4_102_444_800_000;
const CLOCK_FAULT = new URL('../../support/system-clock.preload.mjs', import.meta.url).pathname;

const HOLD = { cost: 4_000, ttl: 30_000 };
const check = (operation: Operation, identifier: string, fields: Fields = {}): Call => {
  const body = { identifier, limit: 10, duration: MINUTE_MS, ...fields };
  return [operation, operation === 'ratelimit.multiLimit' ? [body] : body];
};
const override = (namespaceName: string, identifier = 'vip_*', limit = 100): Call => {
  return ['ratelimits.setOverride', { namespaceName, identifier, limit, duration: MINUTE_MS }];
};
const block = (namespaceName: string, identifier: string): Call => {
  const reason = 'sends spam, ticket 5512';
  return ['ratelimits.setBlock', { namespaceName, identifier, expires: END_MS, reason }];
};
const reservation = (): Call => check('ratelimits.reserve', 'org_1', { limit: 100_000, ...HOLD });
const TWO_CHECKS = [
  { identifier: 'org_3 requests', limit: 60, duration: MINUTE_MS, cost: 1 },
  { identifier: 'org_3 tokens', limit: 100_000, duration: MINUTE_MS, cost: 4_000 },
];
const lease = (identifier: string, cost: number): Call => {
  return ['ratelimits.acquire', { namespace: 'jobs', identifier, limit: 2, cost, ttl: 30_000 }];
};
const key = (name = 'web server', fields: Fields = {}): Call => {
  return ['keys.create', { name, permissions: ['ratelimit.*.limit'], ...fields }];
};
const POLICY: PolicySettings = {
  limit: 100,
  duration: MINUTE_MS,
  gateway: ['nginx', 'caddy', 'envoy'],
};
const exhaustedClient = check('ratelimits.limit', '203.0.113.2', {
  namespace: 'login',
  limit: 100,
  cost: 100,
});
const deniedClient = check('ratelimits.limit', '203.0.113.2', { namespace: 'login', limit: 100 });

/** What a test changes in the first example of an operation, by the name of the error. */
const ALTERATIONS: Record<string, (request: HttpRequest, weakKey: string) => HttpRequest> = {
  unknownKey: (request) => withKey(request, 'weir_unknown'),
  missingKey: (request) => withKey(request, ''),
  missingPermission: withKey,
  tooLarge: (request) => ({ ...request, body: ' '.repeat(MIB + 1) }),
  text: ({ headers, ...request }) => {
    return { ...request, headers: { ...headers, 'Content-Type': 'text/plain' } };
  },
};
/** The largest body of any operation. */
const MIB = 1_048_576;
/** Errors that no request causes by itself. */
const NOT_SENT = ['internal', 'overload'];

/** Permissions of the key of an example. The others are sent with the root key. */
const KEYS: Record<string, readonly string[]> = {
  'ratelimits.limit mayNotCreate': ['ratelimit.*.limit'],
};
/** Of examples whose response has no body, and so no example, and whose status is not 200. */
const STATUSES: Record<string, number> = { 'gateway.authRequest denied': 403 };

type HttpRequest = ReturnType<typeof httpRequest>;
type Call = [operation: Operation, fields: Fields | Fields[]];
/** The calls that bring about the state of an example, which is named after its operation. */
const PREPARATIONS: Record<string, Call[]> = {
  'ratelimits.limit denied': [
    check('ratelimits.limit', 'user_2', { namespace: 'email.send', cost: 10 }),
  ],
  'ratelimit.limit denied': [check('ratelimit.limit', 'user_2', { namespace: 'api', cost: 10 })],
  'ratelimit.limit overridden': [override('api', 'user_3')],
  'ratelimit.multiLimit denied': [
    check('ratelimit.multiLimit', 'org_2', {
      namespace: 'api',
      limit: 1_000,
      duration: 3_600_000,
      cost: 1_000,
    }),
  ],
  'ratelimits.refund refunded': [check('ratelimits.limit', 'user_5')],
  'ratelimits.reset cleared': [check('ratelimits.limit', 'user_7')],
  'ratelimits.reserve denied': [
    check('ratelimits.limit', 'org_2', { namespace: 'llm', limit: 100_000, cost: 99_000 }),
  ],
  'ratelimits.reserve repeatedDifferently': [
    check('ratelimits.reserve', 'org_3', {
      ...{ namespace: 'llm', limit: 100_000, ...HOLD },
      requestId: 'prompt_42',
    }),
  ],
  'ratelimits.acquire repeatedDifferently': [
    [
      'ratelimits.acquire',
      { namespace: 'jobs', identifier: 'tenant_4', limit: 2, ttl: 30_000, requestId: 'job_42' },
    ],
  ],
  'ratelimits.acquire denied': [lease('tenant_2', 2)],
  'ratelimits.inspect counters': [
    check('ratelimits.limit', 'user_9', { duration: 3_600_000, cost: 3 }),
    check('ratelimits.limit', 'user_9', { limit: 20, duration: 600_000, algorithm: 'gcra' }),
  ],
  'ratelimits.explain denied': [
    override('email.send', 'user_*', 5),
    override('email.*', 'user_10', 50),
    check('ratelimits.limit', 'user_10', { namespace: 'email.send', cost: 5 }),
  ],
  'ratelimits.findIdentifier found': [
    override('checkout', 'org_7', 5),
    check('ratelimits.limit', 'org_7', { namespace: 'checkout', cost: 5 }),
  ],
  'ratelimits.explain noLimit': [override('email.send', 'user_*', 5)],
  'ratelimits.getOverride found': [override('mail')],
  'ratelimits.listOverrides page': [override('push'), override('push', 'user_*')],
  'ratelimits.listOverrides all': [override('push'), override('push', 'user_*')],
  'ratelimits.deleteOverride deleted': [override('sms')],
  'ratelimits.exportOverrides page': [override('email.send')],
  'ratelimit.getOverride found': [override('mail')],
  'ratelimit.listOverrides page': [override('push'), override('push', 'user_*')],
  'ratelimit.deleteOverride deleted': [override('sms')],
  'ratelimits.setBlock blocked': [override('email.send')],
  'ratelimits.listBlocks page': [override('email.send'), block('email.send', 'user_8241')],
  'ratelimits.deleteBlock ended': [override('email.send'), block('email.send', 'user_8241')],
  'ratelimits.listNamespaces page': [override('email.send')],
  'ratelimits.deleteNamespace deleted': [override('old')],
  'keys.list page': [key('web server', { expires: END_MS }), key('worker')],
  'keys.revoke revoked': [key()],
  'audit.list page': [key(), override('api', 'user_*'), override('api', 'user_*', 200)],
  'analytics.getNamespaces day': [exhaustedClient, deniedClient],
  'analytics.getTimeline hour': [exhaustedClient, deniedClient],
  'analytics.getIdentifiers hour': [exhaustedClient, deniedClient],
  'analytics.getDecisions denied': [exhaustedClient, deniedClient],
  'analytics.searchIdentifiers found': [exhaustedClient, deniedClient],
  'gateway.check denied': [exhaustedClient],
  'gateway.checkPath denied': [exhaustedClient],
  'gateway.authRequest denied': [exhaustedClient],
};

/** The hold of an example, which the request names. */
const HOLDS: Record<string, Call> = {
  'ratelimits.commit committed': reservation(),
  'ratelimits.commit costs': ['ratelimits.reserve', { checks: TWO_CHECKS, ttl: 30_000 }],
  'ratelimits.cancel cancelled': reservation(),
  'ratelimits.renew renewed': lease('tenant_3', 1),
  'ratelimits.release released': lease('tenant_3', 1),
  'ratelimits.endHold lease': lease('tenant_5', 1),
  'ratelimits.endHold reservation': reservation(),
};

/**
 * Operations whose responses show the changes of others. Each has a server of its own, and those of
 * one group share one.
 */
const OWN_SERVER = new Set([
  ...['ratelimits.exportOverrides', 'ratelimits.listOverrides', 'ratelimits.listBlocks'],
  ...['ratelimits.listNamespaces', 'ratelimits.explain'],
  'ratelimits.findIdentifier',
  ...['keys.list', 'keys.revoke', 'audit.list'],
  ...['gateway.check', 'gateway.checkPath', 'gateway.authRequest'],
]);
const groupOf = (operationId: string) => {
  if (OWN_SERVER.has(operationId)) return operationId;
  return operationId.startsWith('analytics.') ? 'analytics' : 'others';
};
const GROUPS = [...new Set(DOCUMENTED_OPERATIONS.map(({ operationId }) => groupOf(operationId)))];

/** The headers of any response, which the document does not repeat. */
const GENERAL_HEADERS = ['content-length', 'connection', 'keep-alive', 'date', 'uwebsockets'];

describe.each(GROUPS)('operations (%s)', (group) => {
  const operations = DOCUMENTED_OPERATIONS.filter(
    ({ operationId }) => groupOf(operationId) === group,
  );
  const directory = temporaryDirectory();
  let hasPrepared = false;
  let server: ServerProcess;

  beforeAll(async () => {
    const clock = join(directory, 'clock.json');
    writeFileSync(clock, JSON.stringify({ atMs: Date.now(), wallMs: START_MS, rate: 0.01 }));
    // With all documented headers.
    const legacyHeaders = group.startsWith('gateway.');
    const config = writeConfig(directory, { login: { ...POLICY, legacyHeaders } });
    const ports = ['--gateway-port', String(await freePort())];
    server = await startServer(join(directory, 'data'), {
      args: ['--config', config, ...ports, '--acceptors', '1', '--counters', '1024'],
      env: { CLOCK_FILE: clock },
      execArgv: ['--import', CLOCK_FAULT],
    });
  });
  afterAll(async () => {
    // It has not ended by itself.
    const { exitCode, signalCode } = server.child;
    expect([exitCode, signalCode], server.stderr()).toEqual([null, null]);
    server.child.kill('SIGKILL');
    await server.exited;
    removeDirectory(directory);
  });

  /** Brings about the state of an example. All examples of analytics have the same one. */
  async function prepare(example: string): Promise<void> {
    const calls = PREPARATIONS[example] ?? [];
    if (calls.length === 0 || (group === 'analytics' && hasPrepared)) return;
    hasPrepared = true;
    for (const [called, fields] of calls) await callOperationOk(server.port, called, fields);
  }

  describe.each(operations.map((operation) => [operation.operationId, operation] as const))(
    '%s',
    (operationId, operation) => {
      const examples = requestExamples(operation);
      const sent = new Set(examples.map(({ name }) => name));
      const errors = responseExamples(operation).filter(({ name }) => !sent.has(name));

      test('shows a successful request', () => {
        expect(examples.map(({ status }) => status)).toContain(200);
      });

      test.each(examples.map((example) => [example.name, example] as const))(
        'answers the request "%s" as documented',
        async (name, { request, ...expected }) => {
          const example = `${operationId} ${name}`;
          await prepare(example);
          const body = await withRealIds(example, request.body);
          const sent = httpRequest(operation, { ...request, body });
          const key = KEYS[example] === undefined ? ROOT_KEY : await createKey(KEYS[example]);
          const answer = await sendRequest(server.port, withKey(sent, key));
          expectDocumented(operation, answer);
          expect(answer.status).toBe(STATUSES[example] ?? expected.status);
          for (const [header, { examples }] of headersOf(responseOf(operation, answer.status)!)) {
            const documented = examples?.[name]?.value;
            if (documented === undefined) continue;
            const received = answer.headers[header.toLowerCase()];
            expect([header, comparable(received)]).toEqual([header, comparable(`${documented}`)]);
          }
          if (!('body' in expected)) return;
          if (operationId === 'docs.reference') {
            expect(answer.body.startsWith(String(expected.body))).toBe(true);
            return;
          }
          const received = JSON.parse(answer.body);
          if (operationId === 'docs.openapi') expect(received).toMatchObject(Object(expected.body));
          else expect(comparable(received)).toEqual(comparable(expected.body));
        },
      );

      test.each(errors.map((error) => [error.status, error.name, error.example] as const))(
        'documents the error %i "%s"',
        async (status, name, { value }) => {
          const content = contentOf(responseOf(operation, status)!)!;
          expect(faultsIn(content.schema, value)).toEqual([]);
          if (NOT_SENT.includes(name)) return;
          const valid = examples.find((example) => example.status === 200)!;
          const request = httpRequest(operation, valid.request);
          const isAnalytics = operationId.startsWith('analytics.');
          const permission = isAnalytics ? 'ratelimit.*.refund' : 'ratelimit.*.read_analytics';
          const altered = ALTERATIONS[name](request, await createKey([permission]));
          const answer = await sendRequest(server.port, altered);
          expectDocumented(operation, answer);
          expect(answer.status).toBe(status);
          expect(comparable(JSON.parse(answer.body))).toEqual(comparable(value));
        },
      );

      async function createKey(permissions: readonly string[]): Promise<string> {
        const { key } = await callOperationOk(server.port, 'keys.create', {
          name: 'web',
          permissions,
        });
        return key as string;
      }

      /** A key that is revoked must exist, and a hold that is ended. Their ids are random. */
      async function withRealIds(example: string, body: unknown): Promise<unknown> {
        if (HOLDS[example] !== undefined) {
          const { reservationId, leaseId } = await callOperationOk(server.port, ...HOLDS[example]);
          if (operationId === 'ratelimits.endHold') return withRealHandle(body as Fields);
          const id = reservationId === undefined ? { leaseId } : { reservationId };
          return { ...(body as Fields), ...id };
        }
        const isConfigured = example === 'keys.revoke configured';
        if (!isConfigured && example !== 'keys.revoke revoked') return body;
        const { keys } = await callOperationOk(server.port, 'keys.list');
        const [configured, created] = keys as { keyId: string }[];
        return { keyId: (isConfigured ? configured : created).keyId };
      }

      async function withRealHandle({ handle: _, ...hold }: Fields): Promise<Fields> {
        const shown = await callOperationOk(server.port, 'ratelimits.inspect', hold);
        const { list } = shown.holds as { list: { handle: string }[] };
        return { ...hold, handle: list[0].handle };
      }
    },
  );
});

function withKey(request: HttpRequest, key: string): HttpRequest {
  const { headers } = request;
  if ('X-Weir-Key' in headers) return { ...request, headers: { ...headers, 'X-Weir-Key': key } };
  const authorization = key === '' ? '' : `Bearer ${key}`;
  return { ...request, headers: { ...headers, Authorization: authorization } };
}

function httpRequest({ method, path, security }: DocumentedOperation, parts: RequestParts) {
  const names = Object.keys(parts.path);
  const filled = names.reduce((text, name) => {
    return text.replace(`{${name}}`, encodeURIComponent(String(parts.path[name])));
  }, path);
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parts.query)) query.set(name, String(value));
  const search = query.size === 0 ? '' : `?${query}`;
  const isGateway = security.some((scheme) => 'gatewayKey' in scheme);
  const gatewayHeaders = { 'X-Weir-Key': ROOT_KEY, Authorization: '' };
  const bodyless = { 'Content-Type': '', 'Content-Length': '' };
  const headers: Record<string, string> = {
    ...(isGateway && gatewayHeaders),
    ...(method === 'GET' && bodyless),
    ...parts.headers,
  };
  const body = parts.body === undefined ? '' : JSON.stringify(parts.body);
  return { method, path: filled + search, headers, body };
}

/** Expects a documented status with its headers, its type of content and its schema. */
function expectDocumented(operation: DocumentedOperation, answer: ParsedResponse): void {
  const response = responseOf(operation, answer.status);
  if (response === undefined) throw new Error(`the status ${answer.status} is not documented`);
  const { 'content-type': type, ...headers } = answer.headers;
  const documented = new Map(headersOf(response).map(([name, of]) => [name.toLowerCase(), of]));
  const special = Object.keys(headers).filter((name) => !GENERAL_HEADERS.includes(name));
  if (!isEitherOf(operation, answer))
    expect(special.toSorted()).toEqual([...documented.keys()].toSorted());
  for (const name of special) {
    const { schema } = documented.get(name)!;
    const value = schema.type === 'integer' ? Number(headers[name]) : headers[name];
    expect([name, faultsIn(schema, value)]).toEqual([name, []]);
  }
  const content = contentOf(response);
  if (answer.body === '') return;
  expect(type).toBe(content?.type);
  const isJson = /json$/.test(type);
  expect(faultsIn(content!.schema, isJson ? JSON.parse(answer.body) : answer.body)).toEqual([]);
}

/** A 403 of nginx' route is a denial or a lack of permission, with other headers. */
function isEitherOf({ operationId }: DocumentedOperation, { status }: ParsedResponse): boolean {
  return operationId === 'gateway.authRequest' && status === 403;
}

/** A value without what differs from one server to the next. */
function comparable(value: unknown): unknown {
  const isRecent = (time: number) => time >= START_MS && time < START_MS + MINUTE_MS;
  return JSON.parse(JSON.stringify(value), (_, part) => {
    if (typeof part === 'number') return isRecent(part) ? 'a time' : part;
    if (typeof part !== 'string') return part;
    return part
      .replace(/^weir_[\w-]{43}$/, 'a key')
      .replace(/^(rlrs|rlls)_[\w-]{22}$/, '$1_<id>')
      .replaceAll(/\b(rlns|rlor|key)_[0-9a-f]{24}|(req)_[0-9a-f]{24}_\w+/g, '$1$2_<id>')
      .replace(/^http:\/\/127\.0\.0\.1:\d+/, 'http://127.0.0.1:<port>')
      .replace(/retry after \d+ s/, 'retry after <n> s')
      .replace(/;t=\d+$/, ';t=<n>')
      .replace(/^\d+$/, '<n>');
  });
}

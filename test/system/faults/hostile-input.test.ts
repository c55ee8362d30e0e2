/**
 * Hostile input to every operation: it gets the right response, and does not end the process or
 * make it fail. No request is decided twice. Tests pin the reaction of uWebSockets.js itself to
 * unusual heads, besides those of `test/server`; docs/security.md documents it.
 */

import type { AnySchemaObject } from 'ajv';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { IMPORT_MAX_BYTES, MULTI_LIMIT_MAX_BYTES } from '../../../src/core/constants.ts';
import { IS_LONG, recordMeasurement } from '../../support/guarantees.ts';
import { LONGEST_WINDOW_MS, readMetrics, sendCheck, sendRequest } from '../../support/http.ts';
import { DOCUMENTED_OPERATIONS, requestExamples, resolved } from '../../support/openapi.ts';
import { callOperation, callOperationOk, type Fields } from '../../support/operations.ts';
import { PAGE_PATHS } from '../../support/pages.ts';
import { sendUntilClosed } from '../../support/raw-connection.ts';
import {
  ROOT_KEY,
  removeDirectory,
  type ServerProcess,
  startServer,
  temporaryDirectory,
} from '../../support/server.ts';
import { hasOldParser } from '../../support/uws-binaries.ts';
import { HOSTILE_STRINGS } from './mutations.ts';

const dataDir = temporaryDirectory();
let server: ServerProcess;
beforeAll(async () => {
  server = await startServer(dataDir, { args: ['--acceptors', '2', '--counters', '65536'] });
});
afterAll(async () => {
  const all = [...(await readMetrics(server.adminUrl))];
  const failures = all.filter(([name, n]) => /^weir_errors_total.*status="5/.test(name) && n > 0);
  expect(failures).toEqual([]);
  expect(await server.stop()).toEqual({ code: 0, signal: null });
  removeDirectory(dataDir);
});

/** An operation with a body, as the OpenAPI document describes it. */
interface OperationShape {
  path: string;
  /** Fields of a body that is accepted, and of its only item if it is a list. */
  fields: Fields;
  isList: boolean;
  /** Fields with bounds that do not depend on other fields. */
  bounded: [name: string, schema: AnySchemaObject][];
}

/** Their values depend on those of other fields, or on the time. */
const DEPENDENT = ['burst', 'reset', 'expires', 'namespaceId', 'cursor'];

const SHAPES = DOCUMENTED_OPERATIONS.filter(({ requestBody }) => requestBody).map(
  (operation): OperationShape => {
    const schema: AnySchemaObject = resolved(
      operation.requestBody!.content['application/json'].schema,
    );
    const isList = schema.type === 'array';
    const { properties = {} }: AnySchemaObject = isList ? resolved(schema.items) : schema;
    const { body } = requestExamples(operation)[0].request;
    const example = (isList ? (body as Fields[])[0] : body) as Fields;
    const isRefund = operation.path.endsWith('refund');
    const bounded = Object.entries<AnySchemaObject>(properties).filter(([name, { type }]) => {
      if (DEPENDENT.includes(name) || (isRefund && name === 'duration')) return false;
      return type === 'integer' || type === 'string';
    });
    const terms = 'limit' in properties && 'duration' in properties ? ['limit', 'duration'] : [];
    const numbers = Object.fromEntries(terms.map((name) => [name, example[name] ?? 60_000]));
    return { path: operation.path, fields: { ...example, ...numbers }, isList, bounded };
  },
);

/** A valid body with one field replaced by JSON text. */
function bodyWith({ fields, isList }: OperationShape, field = '', json = ''): string {
  const texts = new Map(
    Object.entries(fields).map(([name, value]) => [name, JSON.stringify(value)]),
  );
  if (field !== '') texts.set(field, json);
  const item = `{${[...texts].map(([name, text]) => `"${name}":${text}`).join()}}`;
  return isList ? `[${item}]` : item;
}

/** Statuses for a valid body: a record that it names may not exist. */
const VALID = [200, 404];
type BodyCase = [path: string, body: string | Uint8Array, statuses: number[]];

let bodies = 0;
/** Sends all bodies, and expects their statuses. */
async function expectStatuses(cases: BodyCase[]): Promise<void> {
  bodies += cases.length;
  for (let from = 0; from < cases.length; from += 8) {
    await Promise.all(
      cases.slice(from, from + 8).map(async ([path, body, statuses]) => {
        const { status, body: text } = await sendRequest(server.port, { path, body });
        const context = `${path} ${String(body).slice(0, 200)}: ${text}`;
        expect([context, statuses]).toEqual([context, expect.arrayContaining([status])]);
      }),
    );
  }
}

describe('every operation with a body', () => {
  const nested = (depth: number) => '['.repeat(depth) + ']'.repeat(depth);

  test('accepts a valid body, and rejects one of the wrong shape, of invalid JSON, or of invalid UTF-8', async () => {
    const shapes = ['', ' ', ...'null true 0 -0 1e400 "text" [ { } {] {,}'.split(' ')];
    shapes.push('[[]]', '[null]', '[1]', 'nul', 'NaN', "{'a':1}", '{a:1}', '{"a":1,}', '{"a"}');
    shapes.push('{"a":01}', '{"a":+1}', '{"a":.5}', '{"a":0x1}', '{"a":"\t"}', '{"a":"\\x"}');
    shapes.push('/**/{}', '{}{}', '{}\u0000', '\u0000', '{"identifier":"\\ud800"}', '[{}]');
    shapes.push('{"\\udfff":1}', '{"a":"\\ude00\\ud83d"}', nested(1_000), '['.repeat(30_000));
    const invalidUtf8 = ['ff', 'c080', 'eda080', 'f4908080', 'e282'].map((hex) => {
      return Buffer.from(`7b226964656e746966696572223a22${hex}227d`, 'hex');
    });
    const cases = SHAPES.flatMap((shape): BodyCase[] => {
      const whole = bodyWith(shape);
      const cuts = Array.from({ length: 20 }, (_, i) => {
        return whole.slice(0, Math.floor((whole.length * i) / 20));
      });
      const wrong = [...shapes, ...cuts, `\ufeff${whole}`, `${whole},`, whole.slice(1)];
      return [
        [shape.path, whole, VALID],
        ...[...wrong, ...invalidUtf8].map((body): BodyCase => [shape.path, body, [400]]),
      ];
    });
    await expectStatuses(cases);
  });

  test('accepts exactly the integers and the texts within the bounds', async () => {
    // The others are in the OpenAPI document, and in the tests of their operations.
    const promised = [
      ['/v2/ratelimit.setOverride', 'namespace', { minLength: 1, maxLength: 512 }],
      ['/v2/ratelimit.setOverride', 'identifier', { minLength: 1, maxLength: 512 }],
      ['/v2/ratelimit.setOverride', 'limit', { minimum: 0, maximum: 2 ** 53 - 1 }],
      ['/v2/ratelimit.listOverrides', 'limit', { minimum: 1, maximum: 100 }],
      ['/v1/keys.revoke', 'keyId', { minLength: 1, maxLength: 512 }],
    ] as const;
    for (const [path, field, bounds] of promised) {
      const { bounded } = SHAPES.find((shape) => shape.path === path)!;
      expect(Object.fromEntries(bounded)[field]).toMatchObject(bounds);
    }
    const numbers = [
      ...'-0 -0.0 0 1 1.0 1e0 1e3 1E+3 1000.5 0.1 -1 1e400 -1e400 1e-400 60000.0'.split(' '),
      ...'9007199254740991 9007199254740992 9007199254740993 5e-324'.split(' '),
      ...'18446744073709551616 4294967296 2147483648 1e9999999999 0.1e4'.split(' '),
      ...['9'.repeat(400), 'null', 'true', '"1000"', '[]', '[1000]', '{}', '""'],
    ];
    const cases = SHAPES.flatMap((shape) => {
      return shape.bounded.flatMap(([field, schema]): BodyCase[] => {
        const casesOf = (texts: string[], isAccepted: (value: unknown) => boolean) => {
          return texts.map((json): BodyCase => {
            const statuses = isAccepted(JSON.parse(json)) ? VALID : [400];
            return [shape.path, bodyWith(shape, field, json), statuses];
          });
        };
        if (schema.type === 'integer') {
          const { minimum: min, maximum: max } = schema;
          return casesOf([...numbers, ...[min - 1, min, max, max + 1].map(String)], (value) => {
            const isSafe = Number.isSafeInteger(value) && !Object.is(value, -0);
            return isSafe && (value as number) >= min && (value as number) <= max;
          });
        }
        const { minLength: min, maxLength: max } = schema;
        const texts = [0, 1, min, max, max + 1].flatMap((length) => {
          return ['x', 'é', '😀', '\u0000'].map((character) => character.repeat(length));
        });
        return casesOf(
          [...HOSTILE_STRINGS, ...texts].map((text) => JSON.stringify(text)),
          (text) => {
            const { length } = [...(text as string)];
            return length >= min && length <= max;
          },
        );
      });
    });
    await expectStatuses(cases);
    const counts = `${bodies} bodies, ${SHAPES.length} operations`;
    recordMeasurement('P10', 'bodies of every kind', counts, '0 wrong');
  });

  test('answers a body of 100 000 nested arrays, and a body of the maximum size', async () => {
    const [multiLimit, imports] = ['/v2/ratelimit.multiLimit', '/v1/ratelimits.importOverrides'];
    const large = (bytes: number) => `["${'x'.repeat(bytes - 4)}"]`;
    await expectStatuses([
      ...SHAPES.map(({ path }): BodyCase => {
        return [path, nested(100_000), [path === multiLimit || path === imports ? 400 : 413]];
      }),
      [multiLimit, large(MULTI_LIMIT_MAX_BYTES), [400]],
      [multiLimit, large(MULTI_LIMIT_MAX_BYTES + 1), [413]],
      [imports, large(IMPORT_MAX_BYTES), [400]],
      [imports, large(IMPORT_MAX_BYTES + 1), [413]],
      [multiLimit, `[${'{},'.repeat(300_000)}{}]`, [400]],
      [multiLimit, `[${'"\\u0041",'.repeat(100_000)}1]`, [400]],
      [imports, `{"overrides":[${'{},'.repeat(300_000)}1]}`, [400]],
    ]);
    // Rejected before JSON.parse, which would take a third of a second.
    for (const path of [multiLimit, imports]) {
      const { body } = await sendRequest(server.port, { path, body: nested(500_000) });
      expect(body).toContain('must hold at most');
    }
  });

  test('ignores property names of JavaScript objects, or rejects them where it is strict', async () => {
    const names = ['__proto__', 'constructor', 'prototype', 'toString', 'hasOwnProperty', '\u0000'];
    const cases = SHAPES.flatMap((shape) => {
      return names.map((name): BodyCase => {
        const extra = `{${JSON.stringify(name)}:{"limit":1,"cost":0,"permissions":["*"]},`;
        const statuses = shape.path.startsWith('/v2/') ? [400] : VALID;
        return [shape.path, bodyWith(shape).replace('{', extra), statuses];
      });
    });
    await expectStatuses(cases);
  });
});

test('names of overrides are returned unchanged', async () => {
  const texts = HOSTILE_STRINGS.filter((value) => value !== '');
  for (const identifier of texts) {
    const names = { namespace: 'stored', identifier };
    const terms = { limit: 7, duration: 60_000 };
    await callOperationOk(server.port, 'ratelimit.setOverride', { ...names, ...terms });
    const { data: found } = await callOperationOk(server.port, 'ratelimit.getOverride', names);
    expect(found).toMatchObject({ identifier, limit: 7 });
    const query = { namespaceName: 'stored', identifier };
    const byQuery = await callOperationOk(server.port, 'ratelimits.getOverride', query);
    expect(byQuery).toMatchObject({ identifier });
    await callOperationOk(server.port, 'ratelimit.deleteOverride', names);
  }
  const all = await callOperation(server.port, 'ratelimit.listOverrides', { namespace: 'stored' });
  expect(all.body).toContain('"data":[]');
});

describe('a head', () => {
  const LINE = 'POST /v1/ratelimits.limit HTTP/1.1\r\n';
  const HOST = 'Host: a\r\n';
  const KEY = `Authorization: Bearer ${ROOT_KEY}\r\n`;
  type Make = (body: string) => string;
  const checkOf = (identifier: string) => {
    return { namespace: 'heads', identifier, limit: 10, duration: LONGEST_WINDOW_MS };
  };
  const bodyOf = (identifier: string) => JSON.stringify(checkOf(identifier));
  const used = async (identifier: string) => {
    return 10 - (await sendCheck(server.port, { ...checkOf(identifier), cost: 0 })).remaining;
  };
  const withLine = (line: string, lines = ''): Make => {
    return (body) => `${line}${HOST}${lines}${KEY}Content-Length: ${body.length}\r\n\r\n${body}`;
  };
  /** A valid request with additional header lines. */
  const withLines = (lines: string): Make => withLine(LINE, lines);
  const withTarget = (start: string): Make => withLine(`${start} HTTP/1.1\r\n`);
  const withLength = (length: (right: number) => string): Make => {
    return (body) => `${LINE}${HOST}${KEY}Content-Length:${length(body.length)}\r\n\r\n${body}`;
  };
  const chunks = (make: (size: string, body: string) => string, coding = 'chunked'): Make => {
    return (body) => {
      const framed = make(body.length.toString(16), body);
      return `${LINE}${HOST}${KEY}Transfer-Encoding: ${coding}\r\n\r\n${framed}`;
    };
  };
  const validChunks = (size: string, body: string) => `${size}\r\n${body}\r\n0\r\n\r\n`;
  const sized = (size: (right: string) => string): Make => {
    return chunks((right, body) => validChunks(size(right), body));
  };
  const path = '/v1/ratelimits.limit';

  /** Description, and status of uWebSockets.js, which closes the connection. */
  const REJECTED: [name: string, status: string, make: Make][] = [
    ['an empty length', '505', withLength(() => '')],
    ['a length in hexadecimal', '400', withLength((n) => ` 0x${n.toString(16)}`)],
    ['a length with a fraction', '400', withLength((n) => ` ${n}.0`)],
    ['a length in two words', '400', withLength((n) => ` 1 ${n}`)],
    ['a length of many digits', '400', withLength((n) => ` ${'0'.repeat(27)}${n}`)],
    ['a length beyond 64 bits', '400', withLength((n) => ` ${2n ** 64n + BigInt(n)}`)],
    ['a negative chunk', '400', sized((size) => `-${size}`)],
    ['a chunk size with 0x', '400', sized((size) => `0x${size}`)],
    ['a chunk beyond all bounds', '400', sized(() => 'f'.repeat(16))],
    ['a chunk of 2^60 and the size', '400', sized((size) => `1${size.padStart(15, '0')}`)],
    ['a quoted chunk extension', '400', sized((size) => `${size};a="\n"`)],
    ['101 lines', '431', withLines('X: y\r\n'.repeat(101))],
    ['5 000 lines', '431', withLines('X: y\r\n'.repeat(5_000))],
    ['a line without an end', '431', () => `${LINE}${HOST}X: ${'y'.repeat(100_000)}`],
    ['bare line feeds only', '505', (body) => withLines('')(body).replaceAll('\r', '')],
    ['NUL in its path', '505', withTarget(`POST ${path}\0`)],
    ['two spaces in its request line', '505', withTarget(`POST  ${path}`)],
    ['tabs in its request line', '505', withLine(`POST\t${path}\tHTTP/1.1\r\n`)],
    ['HTTP/1.2', '505', withLine(`POST ${path} HTTP/1.2\r\n`)],
    ['http/1.1', '505', withLine(`POST ${path} http/1.1\r\n`)],
    ['an absolute target', '505', withTarget(`POST http://a${path}`)],
    ['the target *', '505', () => `OPTIONS * HTTP/1.1\r\n${HOST}\r\n`],
    ['CONNECT', '505', () => `CONNECT a:443 HTTP/1.1\r\n${HOST}\r\n`],
    ['TLS', '505', () => `\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03${'\0'.repeat(200)}`],
  ];
  /** With uws-pack these heads are incomplete. */
  const REJECTED_BY_PLATFORM_PACKAGES: typeof REJECTED = [
    ['a tab before a colon', '400', withLines('X\t: y\r\n')],
    ['Transfer-Encoding with a blank', '400', withLines('Transfer-Encoding : chunked\r\n')],
    ['a line that begins with a blank', '400', withLines(' Transfer-Encoding: chunked\r\n')],
    ['a folded line', '400', withLines('X: y\r\n z\r\n')],
    ['a bare line feed', '400', withLines('X: y\n')],
    ['NUL in a value', '400', withLines('X: y\0z\r\n')],
    ['NUL in a name', '400', withLines('X\0: y\r\n')],
    ['a line without a colon', '400', withLines('nothing\r\n')],
    ['HTTP/0.9', '505', () => 'GET /\r\n'],
  ];
  if (!hasOldParser) REJECTED.push(...REJECTED_BY_PLATFORM_PACKAGES);
  const incompleteForUwsPack = hasOldParser ? REJECTED_BY_PLATFORM_PACKAGES : [];

  /** Description, statuses, and charged cost. */
  const ANSWERED: [name: string, statuses: string, charged: number, make: Make][] = [
    ['a percent-encoded path', '404', 0, withTarget('POST /v1/ratelimits%2Elimit')],
    ['a dot in its path', '404', 0, withTarget('POST /v1/./ratelimits.limit')],
    ['two dots in its path', '404', 0, withTarget(`POST /v2/..${path}`)],
    ['upper case in its path', '404', 0, withTarget('POST /V1/ratelimits.limit')],
    ['a trailing slash', '404', 0, withTarget(`POST ${path}/`)],
    ['a path that is no UTF-8', '404', 0, withTarget('POST /v1/\xff\xfe')],
    ['a lower-case method', '405', 0, withTarget(`post ${path}`)],
    ['CONNECT to a path', '405', 0, withTarget(`CONNECT ${path}`)],
    ['TRACE', '405', 0, withTarget(`TRACE ${path}`)],
    ['a wrong key first', '401', 0, withLines('Authorization: Bearer wrong\r\n')],
    ['a wrong key later', '200', 1, withLength((n) => ` ${n}\r\nAuthorization: Bearer wrong`)],
    ['the same length twice', '200', 1, withLength((n) => ` ${n}\r\nContent-Length: ${n}`)],
    ['blanks after its length', '200', 1, withLength((n) => ` ${n} \t`)],
    ['an empty Transfer-Encoding', '200', 1, withLines('Transfer-Encoding:\r\n')],
    ['a coding that ends in "chunked"', '400', 0, chunks(validChunks, 'gzip, xchunked')],
    ['bare line feeds in chunks', '200', 1, chunks((size, body) => `${size}\n${body}\n0\n\n`)],
    ['an upgrade', '200', 1, withLines('Connection: Upgrade\r\nUpgrade: websocket\r\n')],
    [
      'an upgrade to HTTP/2',
      '200',
      1,
      withLines(
        'Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n',
      ),
    ],
    ['Expect', '100,200', 1, withLines('Expect: 100-continue\r\n')],
  ];

  /** uWebSockets.js waits for the end of these heads or bodies. */
  const INCOMPLETE: [name: string, make: Make][] = [
    ...incompleteForUwsPack.map(([name, , make]): [string, Make] => [name, make]),
    ['a bare carriage return', withLines('X: y\r')],
    ['empty lines before it', (body) => `\r\n\r\n${withLines('')(body)}`],
    ['a length that is too long', withLength((n) => ` ${n + 1}`)],
    ['a length of 2^32 and the right one', withLength((n) => ` ${2 ** 32 + n}`)],
    ['a chunk of 2 GiB', sized(() => '7fffffff')],
    ['a chunk extension', sized((size) => `${size};a=b`)],
  ];

  test('that is malformed gets a response of uWebSockets.js, is charged nothing, and the connection closes', async () => {
    const outcomes = await Promise.all(
      REJECTED.map(async ([name, , make]) => {
        const sent = await sendUntilClosed(server.port, [make(bodyOf(name))], 10_000);
        const { statuses, weirResponses, isClosed } = sent;
        return [name, statuses.join(), weirResponses, isClosed, await used(name)];
      }),
    );
    expect(outcomes).toEqual(REJECTED.map(([name, status]) => [name, status, 0, true, 0]));
  });

  test('that is unusual in other ways gets the pinned response, and is charged once at most', async () => {
    const outcomes = await Promise.all(
      ANSWERED.map(async ([name, expected, , make]) => {
        const count = expected.split(',').length;
        // After the expected responses, there is time for one more.
        const sent = await sendUntilClosed(server.port, [make(bodyOf(name))], 500, 1, count);
        return [name, sent.statuses.join(), await used(name)];
      }),
    );
    expect(outcomes).toEqual(
      ANSWERED.map(([name, statuses, charged]) => [name, statuses, charged]),
    );
  });

  test('that is incomplete gets no response, charges nothing, and is closed after some 10 s', async () => {
    const waitMs = IS_LONG ? 20_000 : 300;
    const outcomes = await Promise.all(
      INCOMPLETE.map(async ([name, make]) => {
        const sent = await sendUntilClosed(server.port, [make(bodyOf(name))], waitMs);
        return [name, sent.statuses.join(), sent.isClosed, await used(name)];
      }),
    );
    expect(outcomes).toEqual(INCOMPLETE.map(([name]) => [name, '', IS_LONG, 0]));
    const all = REJECTED.length + ANSWERED.length + INCOMPLETE.length + 3;
    const measured = `${REJECTED.length} rejected and closed, ${INCOMPLETE.length} incomplete, 0 decided twice`;
    recordMeasurement('P3', 'ambiguous and malformed heads', `${all} heads`, measured);
  });

  test('with a length that is too short, or a request hidden in it, causes no second decision', async () => {
    const short = withLength((n) => ` ${n - 1}`)(bodyOf('short'));
    // The parser ignores the lines after a line without a name, and serves no later request.
    const nameless = withLength((n) => ` ${n}`)(bodyOf('nameless')).replace(
      'Content-Length',
      ': y\r\nContent-Length',
    );
    for (const packet of [short, nameless]) {
      const { statuses } = await sendUntilClosed(server.port, [packet], 300);
      expect(statuses).not.toContain(200);
    }
    // Any two bytes end the last chunk: here the first two of the next request.
    const hidden = chunks((size, body) => `${size}\r\n${body}\r\n0\r\n`)(bodyOf('first'));
    const next = withLines('')(bodyOf('second'));
    const { statuses, isClosed } = await sendUntilClosed(server.port, [hidden + next], 10_000);
    expect([statuses, isClosed]).toEqual([[], true]);
    const charged = await Promise.all(['short', 'nameless', 'first', 'second'].map(used));
    expect(charged).toEqual([0, 0, 1, 0]);
  });
});

const METHODS = ['GET', 'POST', 'PUT', 'DELETE', 'PATCH', 'OPTIONS', 'TRACE', 'BREW', 'get'];
test('pages get GET only, and unexpected paths a 404, by every method', async () => {
  const found = new Map([['/docs/', 308]]);
  for (const page of PAGE_PATHS) found.set(page, 200);
  const paths = [
    ...'/ /docs/index.html /docs/style.css/ /docs/../package.json /docs/errors/'.split(' '),
    ...'/docs/errors/__proto__ /docs/errors/../../etc/passwd'.split(' '),
    ...'/v1/ /v2/ /v1/constructor /v3/ratelimit.limit /metrics /livez /.env'.split(' '),
    ...'/% /%00 /%ff /v1/ratelimits.limit%00 // ///////'.split(' '),
    `/${'a'.repeat(8_000)}`,
  ];
  const all = [...paths, ...found.keys()].flatMap((path) =>
    METHODS.map((method) => [method, path]),
  );
  for (const [method, path] of all) {
    const { status } = await sendRequest(server.port, { method, path });
    const ofPage = method === 'GET' ? found.get(path) : 405;
    expect([method, path, status]).toEqual([method, path, found.has(path) ? ofPage : 404]);
  }
  recordMeasurement('P10', 'pages, paths and methods', `${all.length} requests`, '0 wrong');
});

test('hostile requests to the admin port cause no 5xx, and it continues to serve', async () => {
  const { port } = new URL(server.adminUrl);
  const host = `Host: 127.0.0.1:${port}\r\n`;
  const withHead = (line: string, lines = '') => `${line} HTTP/1.1\r\n${host}${lines}\r\n`;
  const sent = [
    withHead('CONNECT a:443'),
    withHead('OPTIONS *'),
    withHead('GET http://other.example/metrics'),
    `GET /metrics HTTP/1.1\r\n\r\n`,
    withHead('POST /metrics', 'Content-Length: 5\r\nTransfer-Encoding: chunked\r\n'),
    withHead('POST /metrics', 'Content-Length: 99999999999999999999\r\n'),
    withHead('GET /metrics', 'Connection: Upgrade\r\nUpgrade: websocket\r\n'),
    withHead('GET /metrics', 'X : y\r\n'),
    withHead(`GET /${'a'.repeat(100_000)}`),
    withHead('GET /metrics', 'X: y\r\n'.repeat(5_000)),
    'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n',
    '\0'.repeat(1_000),
    ...HOSTILE_STRINGS.map((value) => withHead(`GET /${encodeURIComponent(value)}`)),
  ];
  await Promise.all(
    sent.map(async (bytes) => {
      const { statuses } = await sendUntilClosed(Number(port), [bytes], 1_000);
      const wrong = statuses.filter((status) => status >= 500);
      expect([bytes.slice(0, 60), wrong]).toEqual([bytes.slice(0, 60), []]);
    }),
  );
  expect((await fetch(`${server.adminUrl}/readyz`)).status).toBe(200);
  recordMeasurement('P10', 'the admin port', `${sent.length} requests`, '0 exits, 0 5xx');
});

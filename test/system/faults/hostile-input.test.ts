/**
 * Hostile input to every operation: it gets the right response, and does not end the process or
 * make it fail. Different names never share a counter, and no request is decided twice. Tests pin
 * the reaction of uWebSockets.js itself to unusual heads, which docs/security.md documents.
 */

import { connect } from 'node:net';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { OPERATION_NAMES, OPERATIONS } from '../../../src/api/common/operations.ts';
import {
  AMOUNT_MAX,
  DURATION_MAX_MS,
  IMPORT_MAX_BYTES,
  KEY_NAME_MAX_CHARACTERS,
  MULTI_LIMIT_MAX_BYTES,
  V2_DURATION_MAX_MS,
  WILDCARDS_PER_TEXT_MAX,
} from '../../../src/core/constants.ts';
import { ERRORS } from '../../../src/core/errors.ts';
import { IS_LONG, recordMeasurement } from '../../support/guarantees.ts';
import {
  LONGEST_WINDOW_MS,
  type ParsedResponse,
  readMetrics,
  requestBytes,
  sendCheck,
  sendRequest,
} from '../../support/http.ts';
import {
  COUNTER_OPERATION_NAMES,
  callOperation,
  callOperationOk,
  type Fields,
  type Operation,
  pathAndMethodOf,
} from '../../support/operations.ts';
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

/** Bounds of a text's length, in characters. */
const textField = (max: number, min = 1) => ({ min, max });
/** A body that an operation accepts, and the bounds of its fields. A check has a cost. */
interface OperationShape {
  fields: Fields;
  texts?: Record<string, { min: number; max: number }>;
  integers?: Record<string, { min: number; max: number }>;
}
const one = { identifier: 'shape', duration: 60_000 };
const AMOUNT = { min: 1, max: AMOUNT_MAX };
const COST = { min: 0, max: AMOUNT_MAX };
const DURATION = { min: 1_000, max: DURATION_MAX_MS };
const V2_DURATION = { min: 1_000, max: V2_DURATION_MAX_MS };
const TEXTS_V1 = { identifier: textField(512, 0), namespace: textField(512) };
const TEXTS_V2 = { identifier: textField(512), namespace: textField(512) };
const check = { ...one, limit: 1_000_000, namespace: 'shapes', cost: 1 };
const CHECK_V2: OperationShape = {
  fields: check,
  texts: TEXTS_V2,
  integers: { limit: AMOUNT, duration: V2_DURATION, cost: COST },
};
const COUNTER: OperationShape = {
  fields: { ...one, namespace: 'shapes' },
  texts: TEXTS_V1,
  integers: { duration: DURATION },
};
const OVERRIDE_V2: OperationShape = {
  fields: { identifier: 'shape', namespace: 'shapes' },
  texts: TEXTS_V2,
};
const SHAPES: Partial<Record<Operation, OperationShape>> = {
  'ratelimits.limit': {
    fields: check,
    texts: TEXTS_V1,
    integers: { limit: AMOUNT, duration: DURATION, cost: COST },
  },
  'ratelimit.limit': CHECK_V2,
  'ratelimit.multiLimit': CHECK_V2,
  'ratelimits.refund': {
    fields: { ...one, namespace: 'shapes', reset: 60_000, cost: 1 },
    texts: TEXTS_V1,
    integers: { cost: COST },
  },
  'ratelimits.reset': COUNTER,
  'ratelimits.inspect': COUNTER,
  'ratelimits.explain': {
    fields: { ...one, limit: 5, namespace: 'shapes', cost: 1 },
    texts: TEXTS_V1,
    integers: { limit: AMOUNT, duration: DURATION, cost: COST },
  },
  'ratelimits.setOverride': {
    fields: { ...one, namespaceName: 'shapes', limit: 5 },
    texts: { identifier: textField(512, 3), namespaceName: textField(512) },
    integers: { limit: AMOUNT, duration: DURATION },
  },
  'ratelimit.setOverride': {
    fields: { ...one, namespace: 'shapes', limit: 5 },
    texts: TEXTS_V2,
    integers: { limit: COST, duration: DURATION },
  },
  'ratelimits.deleteOverride': {
    fields: { identifier: 'shape', namespaceName: 'shapes' },
    texts: { identifier: textField(512, 0), namespaceName: textField(512) },
  },
  'ratelimit.deleteOverride': OVERRIDE_V2,
  'ratelimit.getOverride': OVERRIDE_V2,
  'ratelimit.listOverrides': {
    fields: { namespace: 'shapes', limit: 10 },
    texts: { namespace: textField(512) },
    integers: { limit: { min: 1, max: 100 } },
  },
  'ratelimits.importOverrides': { fields: { overrides: [], dryRun: true } },
  'keys.create': {
    fields: { name: 'shape', permissions: ['ratelimit.*.limit'], expires: AMOUNT_MAX },
    texts: { name: textField(KEY_NAME_MAX_CHARACTERS) },
  },
  'keys.revoke': { fields: { keyId: 'key_shape' }, texts: { keyId: textField(512) } },
};
const POSTS = Object.keys(SHAPES) as Operation[];

const sendOperation = (
  operation: Operation,
  body: string | Uint8Array,
): Promise<ParsedResponse> => {
  return sendRequest(server.port, { path: pathAndMethodOf(operation).path, body });
};
/** A valid body with one field replaced by JSON text. */
const bodyWith = (operation: Operation, field: string, json: string): string => {
  const { fields } = SHAPES[operation]!;
  const parts = Object.entries(fields).map(([name, value]) => {
    return `"${name}":${name === field ? json : JSON.stringify(value)}`;
  });
  const item = `{${parts.join()}}`;
  return operation === 'ratelimit.multiLimit' ? `[${item}]` : item;
};
/** Statuses for a valid body: a record that it names may not exist. */
const VALID = [200, 404];

let bodies = 0;
/** Sends all bodies. @returns a description of each unexpected response */
async function findWrongStatuses(
  cases: [Operation, string | Uint8Array, number[]][],
): Promise<string[]> {
  const wrong: string[] = [];
  bodies += cases.length;
  for (let from = 0; from < cases.length; from += 8) {
    const batch = cases.slice(from, from + 8);
    const responses = await Promise.all(
      batch.map(([operation, body]) => sendOperation(operation, body)),
    );
    responses.forEach(({ status, body: text }, i) => {
      const [operation, body, statuses] = batch[i];
      if (statuses.includes(status)) return;
      wrong.push(`${operation} ${String(body).slice(0, 200)}: ${status} ${text}`);
    });
  }
  return wrong;
}

test('the tests below cover every operation with a body', async () => {
  const posts = [...OPERATION_NAMES.filter((name) => OPERATIONS[name].method === 'POST')];
  expect([...POSTS].sort()).toEqual([...posts, ...COUNTER_OPERATION_NAMES].sort());
  const valid = POSTS.map((operation): [Operation, string, number[]] => {
    return [operation, bodyWith(operation, '', ''), VALID];
  });
  expect(await findWrongStatuses(valid)).toEqual([]);
});

describe('every operation', () => {
  const nested = (depth: number) => '['.repeat(depth) + ']'.repeat(depth);

  test('rejects with 400 a body of the wrong shape, of invalid JSON, or of invalid UTF-8', async () => {
    const shapes = ['', ' ', ...'null true 0 -0 1e400 "text" [ { } {] {,}'.split(' ')];
    shapes.push('[[]]', '[null]', '[1]', 'nul', 'NaN', "{'a':1}", '{a:1}', '{"a":1,}', '{"a"}');
    shapes.push('{"a":01}', '{"a":+1}', '{"a":.5}', '{"a":0x1}', '{"a":"\t"}', '{"a":"\\x"}');
    shapes.push('/**/{}', '{}{}', '{}\u0000', '\u0000', '{"identifier":"\\ud800"}', '[{}]');
    shapes.push('{"\\udfff":1}', '{"a":"\\ude00\\ud83d"}', nested(1_000), '['.repeat(30_000));
    const cases = POSTS.flatMap((operation) => {
      const whole = bodyWith(operation, '', '');
      const cut = Array.from({ length: 20 }, (_, i) => {
        return whole.slice(0, Math.floor((whole.length * i) / 20));
      });
      const wrong = [...shapes, ...cut, `\ufeff${whole}`, `${whole},`, whole.slice(1)];
      const invalidUtf8 = ['ff', 'c080', 'eda080', 'f4908080', 'e282'].map((hex) => {
        return Buffer.from(
          `{"identifier":"${Buffer.from(hex, 'hex').toString('latin1')}"}`,
          'latin1',
        );
      });
      return [...wrong, ...invalidUtf8].map((body): [Operation, string | Uint8Array, number[]] => {
        return [operation, body, [400]];
      });
    });
    expect(await findWrongStatuses(cases)).toEqual([]);
  });

  test('accepts exactly the numbers that are safe integers within the bounds', async () => {
    const texts = [
      ...'-0 -0.0 0 1 1.0 1e0 1e3 1E+3 1000.5 0.1 -1 1e400 -1e400 1e-400 60000.0'.split(' '),
      ...'9007199254740991 9007199254740992 9007199254740993 5e-324'.split(' '),
      ...'18446744073709551616 4294967296 2147483648'.split(' '),
      '9'.repeat(400),
    ];
    texts.push('null', 'true', '"1000"', '[]', '[1000]', '{}', '""', '1e9999999999', '0.1e4');
    const cases = POSTS.flatMap((operation) => {
      return Object.entries(SHAPES[operation]!.integers ?? {}).flatMap(([field, { min, max }]) => {
        const bounds = [min - 1, min, max, max + 1].map(String);
        return [...texts, ...bounds].map((json): [Operation, string, number[]] => {
          const value: unknown = JSON.parse(json);
          const isSafe = Number.isSafeInteger(value) && !Object.is(value, -0);
          const isAccepted = isSafe && (value as number) >= min && (value as number) <= max;
          return [operation, bodyWith(operation, field, json), isAccepted ? VALID : [400]];
        });
      });
    });
    expect(await findWrongStatuses(cases)).toEqual([]);
  });

  test('accepts exactly the texts of a permitted length', async () => {
    const cases = POSTS.flatMap((operation) => {
      return Object.entries(SHAPES[operation]!.texts ?? {}).flatMap(([field, { min, max }]) => {
        const lengths = [0, 1, min, max, max + 1].flatMap((length) => {
          return ['x', 'é', '😀', '\u0000'].map((character) => character.repeat(length));
        });
        return [...HOSTILE_STRINGS, ...lengths].map((value): [Operation, string, number[]] => {
          const { length } = [...value];
          const isAccepted = length >= min && length <= max;
          const body = bodyWith(operation, field, JSON.stringify(value));
          return [operation, body, isAccepted ? VALID : [400]];
        });
      });
    });
    expect(await findWrongStatuses(cases)).toEqual([]);
    recordMeasurement(
      'P10',
      'bodies of every kind',
      `${bodies} bodies, ${POSTS.length} operations`,
      '0 wrong',
    );
  });

  test('answers a body of 100 000 nested arrays, and a body of the maximum size', async () => {
    const deep = nested(100_000);
    const large = (bytes: number) => `["${'x'.repeat(bytes - 4)}"]`;
    const cases = POSTS.map((operation): [Operation, string, number[]] => {
      const accepts1MiB =
        operation === 'ratelimit.multiLimit' || operation.endsWith('importOverrides');
      return [operation, deep, [accepts1MiB ? 400 : 413]];
    });
    cases.push(['ratelimit.multiLimit', large(MULTI_LIMIT_MAX_BYTES), [400]]);
    cases.push(['ratelimit.multiLimit', large(MULTI_LIMIT_MAX_BYTES + 1), [413]]);
    cases.push(['ratelimits.importOverrides', large(IMPORT_MAX_BYTES), [400]]);
    cases.push(['ratelimits.importOverrides', large(IMPORT_MAX_BYTES + 1), [413]]);
    cases.push(['ratelimit.multiLimit', `[${'{},'.repeat(300_000)}{}]`, [400]]);
    cases.push(['ratelimit.multiLimit', `[${'"\\u0041",'.repeat(100_000)}1]`, [400]]);
    cases.push(['ratelimits.importOverrides', `{"overrides":[${'{},'.repeat(300_000)}1]}`, [400]]);
    expect(await findWrongStatuses(cases)).toEqual([]);
    // Rejected before JSON.parse, which would take a third of a second.
    for (const operation of ['ratelimit.multiLimit', 'ratelimits.importOverrides'] as const) {
      expect((await sendOperation(operation, nested(500_000))).body).toContain('must hold at most');
    }
  });

  test('ignores property names of JavaScript objects, or rejects them where it is strict', async () => {
    const names = ['__proto__', 'constructor', 'prototype', 'toString', 'hasOwnProperty', '\u0000'];
    const cases = POSTS.flatMap((operation) => {
      const isStrict = pathAndMethodOf(operation).path.startsWith('/v2/');
      return names.map((name): [Operation, string, number[]] => {
        const extra = `{${JSON.stringify(name)}:{"limit":1,"cost":0,"permissions":["*"]},`;
        const body = bodyWith(operation, '', '').replace('{', extra);
        return [operation, body, isStrict ? [400] : VALID];
      });
    });
    expect(await findWrongStatuses(cases)).toEqual([]);
  });
});

describe('names', () => {
  const NAMES = [
    ...'a b ab : a: :a a:b a/b / | a|b , " \\ "," * a* 1 11 é e\u0301'.split(' '),
    ...['\u0000', 'a\u0000', '\u0000a', ' ', 'a ', ' a', '\n'],
  ];

  test('share a counter only if they are equal, whatever delimiters they contain', async () => {
    let pairs = 0;
    for (const namespace of NAMES) {
      const texts = ['', ...NAMES];
      const remaining = await Promise.all(
        texts.map(async (identifier) => {
          const body = {
            namespace: `n${namespace}`,
            identifier,
            limit: 10,
            duration: LONGEST_WINDOW_MS,
          };
          return (await sendCheck(server.port, body)).remaining;
        }),
      );
      pairs += texts.length;
      expect([namespace, remaining]).toEqual([namespace, texts.map(() => 9)]);
    }
    recordMeasurement('P1', 'delimiters in names', `${pairs} pairs`, '0 share a counter');
  });

  test('are returned unchanged, and each has its own counter', async () => {
    const texts = HOSTILE_STRINGS.filter((value) => value !== '');
    const item = (identifier: string) => {
      return { namespace: 'echoed', identifier, limit: 10, duration: V2_DURATION_MAX_MS };
    };
    const { data } = await callOperationOk(server.port, 'ratelimit.multiLimit', texts.map(item));
    const { limits } = data as { limits: { identifier: string; remaining: number }[] };
    expect(limits.map(({ identifier, remaining }) => [identifier, remaining])).toEqual(
      texts.map((identifier) => [identifier, 9]),
    );
    for (const identifier of texts) {
      const texts = { namespace: 'stored', identifier };
      const set = await callOperation(server.port, 'ratelimit.setOverride', {
        ...texts,
        limit: 7,
        duration: 60_000,
      });
      expect([identifier, set.status]).toEqual([identifier, 200]);
      const { data: found } = await callOperationOk(server.port, 'ratelimit.getOverride', texts);
      expect(found).toMatchObject({ identifier, limit: 7 });
      const query = { namespaceName: 'stored', identifier };
      expect(await callOperationOk(server.port, 'ratelimits.getOverride', query)).toMatchObject({
        identifier,
      });
      await callOperationOk(server.port, 'ratelimit.deleteOverride', texts);
    }
    expect(
      (await callOperation(server.port, 'ratelimit.listOverrides', { namespace: 'stored' })).body,
    ).toContain('"data":[]');
  });
});

test('patterns designed to be slow do not block a thread', async () => {
  const stars = (segment: string, end: string) =>
    `${`${segment}*`.repeat(WILDCARDS_PER_TEXT_MAX)}${end}`;
  const patterns = ['a', 'ab', 'aab', 'aaaaaaaa', 'ba'].flatMap((segment) => {
    return ['b', 'ab', 'bb', 'aaab'].map((end) => stars(segment, end));
  });
  const overrides = patterns.map((identifier) => {
    return { namespaceName: 'slow*', identifier, limit: 77, duration: LONGEST_WINDOW_MS };
  });
  overrides.push(...overrides.map((one) => ({ ...one, namespaceName: stars('s', 'w') })));
  await callOperationOk(server.port, 'ratelimits.importOverrides', { overrides });
  const texts = ['a', 'ab', 'ba', 'aab', 'aaab'].flatMap((segment) => {
    return ['', 'b', 'c'].map((end) => segment.repeat(500 / segment.length) + end);
  });
  let matchCount = 0;
  let maxMs = 0;
  for (const identifier of texts) {
    const startedMs = performance.now();
    const body = { namespace: 'slow', identifier, limit: 1, duration: LONGEST_WINDOW_MS, cost: 0 };
    const { limit } = await sendCheck(server.port, body);
    maxMs = Math.max(maxMs, performance.now() - startedMs);
    const matches = patterns.some((pattern) => {
      return matchesPattern(pattern.split('*'), identifier);
    });
    expect([identifier, limit]).toEqual([identifier, matches ? 77 : 1]);
    if (matches) matchCount++;
  }
  const measured = `${matchCount} matched, each answered, ${maxMs.toFixed(1)} ms at most`;
  recordMeasurement(
    'P10',
    'patterns designed to be slow',
    `${texts.length} texts, ${overrides.length} patterns`,
    measured,
  );
  expect([matchCount > 0, matchCount < texts.length]).toEqual([true, true]);
});

/** Whether a text starts with the first segment, ends with the last, and has all in order. */
function matchesPattern(segments: string[], whole: string): boolean {
  const first = segments[0];
  const last = segments.at(-1)!;
  if (!whole.startsWith(first) || !whole.endsWith(last)) return false;
  let at = first.length;
  for (const segment of segments.slice(1, -1)) {
    const found = whole.indexOf(segment, at);
    if (found < 0) return false;
    at = found + segment.length;
  }
  return at + last.length <= whole.length;
}

describe('a head', () => {
  const LINE = 'POST /v1/ratelimits.limit HTTP/1.1\r\n';
  const HOST = 'Host: a\r\n';
  const KEY = `Authorization: Bearer ${ROOT_KEY}\r\n`;
  type Make = (body: string) => string;
  const bodyOf = (identifier: string) => {
    return JSON.stringify({
      namespace: 'heads',
      identifier,
      limit: 10,
      duration: LONGEST_WINDOW_MS,
    });
  };
  const used = async (identifier: string) => {
    const body = {
      namespace: 'heads',
      identifier,
      limit: 10,
      duration: LONGEST_WINDOW_MS,
      cost: 0,
    };
    return 10 - (await sendCheck(server.port, body)).remaining;
  };
  /** A valid request with additional header lines. */
  const withLines = (lines: string): Make => {
    return (body) => `${LINE}${HOST}${lines}${KEY}Content-Length: ${body.length}\r\n\r\n${body}`;
  };
  const withLength = (length: (right: number) => string): Make => {
    return (body) => `${LINE}${HOST}${KEY}Content-Length:${length(body.length)}\r\n\r\n${body}`;
  };
  const withLine = (line: string): Make => {
    return (body) => `${line}${HOST}${KEY}Content-Length: ${body.length}\r\n\r\n${body}`;
  };
  const chunks = (make: (size: string, body: string) => string, coding = 'chunked'): Make => {
    return (body) => {
      const framed = make(body.length.toString(16), body);
      return `${LINE}${HOST}${KEY}Transfer-Encoding: ${coding}\r\n\r\n${framed}`;
    };
  };
  const validChunks = (size: string, body: string) => `${size}\r\n${body}\r\n0\r\n\r\n`;

  /** Description and status. */
  const REJECTED: [string, string, Make][] = [
    ['an empty length', '505', withLength(() => '')],
    ['a list of lengths', '400', withLength((n) => ` ${n}, ${n}`)],
    ['a length with a sign', '400', withLength((n) => ` +${n}`)],
    ['a length in hexadecimal', '400', withLength((n) => ` 0x${n.toString(16)}`)],
    ['a length with a fraction', '400', withLength((n) => ` ${n}.0`)],
    ['a length in two words', '400', withLength((n) => ` 1 ${n}`)],
    ['a length of many digits', '400', withLength((n) => ` ${'0'.repeat(27)}${n}`)],
    ['a length beyond 64 bits', '400', withLength((n) => ` ${2n ** 64n + BigInt(n)}`)],
    ['a negative chunk', '400', chunks((size, body) => validChunks(`-${size}`, body))],
    ['a chunk size with 0x', '400', chunks((size, body) => validChunks(`0x${size}`, body))],
    ['a chunk beyond all bounds', '400', chunks((_, body) => validChunks('f'.repeat(16), body))],
    [
      'a chunk of 2^60 and the size',
      '400',
      chunks((size, body) => validChunks(`1${size.padStart(15, '0')}`, body)),
    ],
    [
      'a quoted chunk extension',
      '400',
      chunks((size, body) => validChunks(`${size};a="\n"`, body)),
    ],
    ['101 lines', '431', withLines('X: y\r\n'.repeat(101))],
    ['5 000 lines', '431', withLines('X: y\r\n'.repeat(5_000))],
    ['a line without an end', '431', () => `${LINE}${HOST}X: ${'y'.repeat(100_000)}`],
    ['bare line feeds only', '505', (body) => withLines('')(body).replaceAll('\r', '')],
    ['NUL in its path', '505', withLine('POST /v1/ratelimits.limit\0 HTTP/1.1\r\n')],
    ['two spaces in its request line', '505', withLine('POST  /v1/ratelimits.limit HTTP/1.1\r\n')],
    ['tabs in its request line', '505', withLine('POST\t/v1/ratelimits.limit\tHTTP/1.1\r\n')],
    ['HTTP/1.2', '505', withLine('POST /v1/ratelimits.limit HTTP/1.2\r\n')],
    ['http/1.1', '505', withLine('POST /v1/ratelimits.limit http/1.1\r\n')],
    ['an absolute target', '505', withLine('POST http://a/v1/ratelimits.limit HTTP/1.1\r\n')],
    ['the target *', '505', () => `OPTIONS * HTTP/1.1\r\n${HOST}\r\n`],
    ['CONNECT', '505', () => `CONNECT a:443 HTTP/1.1\r\n${HOST}\r\n`],
    ['the PROXY protocol', '505', withLine(`PROXY TCP4 1.1.1.1 2.2.2.2 1 2\r\n${LINE}`)],
    ['TLS', '505', () => `\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03${'\0'.repeat(200)}`],
  ];
  /** Description, statuses, and charged cost. */
  const ANSWERED: [string, string, number, Make][] = [
    ['a percent-encoded path', '404', 0, withLine('POST /v1/ratelimits%2Elimit HTTP/1.1\r\n')],
    ['a dot in its path', '404', 0, withLine('POST /v1/./ratelimits.limit HTTP/1.1\r\n')],
    ['two dots in its path', '404', 0, withLine('POST /v2/../v1/ratelimits.limit HTTP/1.1\r\n')],
    ['upper case in its path', '404', 0, withLine('POST /V1/ratelimits.limit HTTP/1.1\r\n')],
    ['a trailing slash', '404', 0, withLine('POST /v1/ratelimits.limit/ HTTP/1.1\r\n')],
    ['a path that is no UTF-8', '404', 0, withLine('POST /v1/\xff\xfe HTTP/1.1\r\n')],
    ['a lower-case method', '405', 0, withLine('post /v1/ratelimits.limit HTTP/1.1\r\n')],
    ['CONNECT to a path', '405', 0, withLine('CONNECT /v1/ratelimits.limit HTTP/1.1\r\n')],
    ['TRACE', '405', 0, withLine('TRACE /v1/ratelimits.limit HTTP/1.1\r\n')],
    ['a wrong key before the right one', '401', 0, withLines('Authorization: Bearer wrong\r\n')],
    [
      'a wrong key after the right one',
      '200',
      1,
      withLength((n) => ` ${n}\r\nAuthorization: Bearer wrong`),
    ],
    hasOldParser
      ? ['two hosts', '200', 1, withLines('Host: b\r\n')]
      : ['two hosts', '400', 0, withLines('Host: b\r\n')],
    ['the same length twice', '200', 1, withLength((n) => ` ${n}\r\nContent-Length: ${n}`)],
    ['zeros before its length', '200', 1, withLength((n) => ` 000${n}`)],
    ['blanks after its length', '200', 1, withLength((n) => ` ${n} \t`)],
    ['an unknown Transfer-Encoding', '400', 0, chunks(validChunks, 'identity')],
    ['an empty Transfer-Encoding', '200', 1, withLines('Transfer-Encoding:\r\n')],
    ['a coding that ends in "chunked"', '400', 0, chunks(validChunks, 'gzip, xchunked')],
    ['bare line feeds in chunks', '200', 1, chunks((size, body) => `${size}\n${body}\n0\n\n`)],
    [
      'any two bytes after a chunk',
      '200',
      1,
      chunks((size, body) => `${size}\r\n${body}XX0\r\nXX`),
    ],
    [
      'an upgrade to WebSocket',
      '200',
      1,
      withLines('Connection: Upgrade\r\nUpgrade: websocket\r\n'),
    ],
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
  test('that is unusual in other ways gets the pinned response, and is charged once at most', async () => {
    const outcomes = await Promise.all(
      ANSWERED.map(async ([name, expected, , make]) => {
        const packets = [make(bodyOf(name))];
        const count = expected.split(',').length;
        // After the expected responses, there is time for one more.
        const { statuses } = await sendUntilClosed(server.port, packets, 500, 1, count);
        return [name, statuses.join(), await used(name)];
      }),
    );
    expect(outcomes).toEqual(
      ANSWERED.map(([name, statuses, charged]) => [name, statuses, charged]),
    );
  });

  /** Description, and status of the platform packages; for uws-pack these heads are incomplete. */
  const REJECTED_BY_PLATFORM_PACKAGES: [string, string, Make][] = [
    ['a blank before a colon', '400', withLines('X : y\r\n')],
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

  /** uWebSockets.js waits for the end of these heads or bodies. */
  const INCOMPLETE: [string, Make][] = [
    ...(hasOldParser
      ? REJECTED_BY_PLATFORM_PACKAGES.map(([name, , make]): [string, Make] => [name, make])
      : []),
    ['a bare carriage return', withLines('X: y\r')],
    ['empty lines before it', (body) => `\r\n\r\n${withLines('')(body)}`],
    ['a length that is too long', withLength((n) => ` ${n + 1}`)],
    ['a length of 2^32 and the right one', withLength((n) => ` ${2 ** 32 + n}`)],
    ['a chunk of 2 GiB', chunks((_, body) => validChunks('7fffffff', body))],
    ['a chunk extension', chunks((size, body) => validChunks(`${size};a=b`, body))],
  ];
  test.each(REJECTED)(
    'with %s gets a %s of uWebSockets.js, and the connection closes',
    async (name, status, make) => {
      const { statuses, weirResponses, isClosed } = await sendUntilClosed(
        server.port,
        [make(bodyOf(name))],
        10_000,
      );
      expect([statuses.join(), weirResponses, isClosed]).toEqual([status, 0, true]);
      expect(await used(name)).toBe(0);
    },
  );

  test('that is incomplete gets no response, charges nothing, and is closed after some 10 s', async () => {
    const outcomes = await Promise.all(
      INCOMPLETE.map(async ([name, make]) => {
        const waitMs = IS_LONG ? 20_000 : 300;
        const { statuses, isClosed } = await sendUntilClosed(
          server.port,
          [make(bodyOf(name))],
          waitMs,
        );
        return [name, statuses.join(), isClosed, await used(name)];
      }),
    );
    expect(outcomes).toEqual(INCOMPLETE.map(([name]) => [name, '', IS_LONG, 0]));
  });

  test('with a length that is too short, or a request hidden in it, causes no second decision', async () => {
    const short = withLength((n) => ` ${n - 1}`)(bodyOf('short'));
    expect((await sendUntilClosed(server.port, [short], 300)).statuses).not.toContain(200);
    expect(await used('short')).toBe(0);
    // The parser ignores the lines after a line without a name, and serves no later request.
    const nameless = withLength((n) => ` ${n}`)(bodyOf('nameless')).replace(
      'Content-Length',
      ': y\r\nContent-Length',
    );
    expect((await sendUntilClosed(server.port, [nameless], 300)).statuses).not.toContain(200);
    expect(await used('nameless')).toBe(0);
    // Any two bytes end the last chunk: here the first two of the next request.
    const hidden = chunks((size, body) => `${size}\r\n${body}\r\n0\r\n`)(bodyOf('first'));
    const next = withLines('')(bodyOf('second'));
    const { statuses, isClosed } = await sendUntilClosed(server.port, [hidden + next], 10_000);
    expect([statuses, isClosed]).toEqual([[], true]);
    expect([await used('first'), await used('second')]).toEqual([1, 0]);
  });

  test('of the cases above is counted for the table of guarantees', () => {
    const all = REJECTED.length + ANSWERED.length + INCOMPLETE.length + 3;
    const measured = `${REJECTED.length} rejected and closed, ${INCOMPLETE.length} incomplete, 0 decided twice`;
    recordMeasurement('P3', 'ambiguous and malformed heads', `${all} heads`, measured);
  });
});

const METHODS = ['GET', 'POST', 'PUT', 'DELETE', 'PATCH', 'OPTIONS', 'TRACE', 'BREW', 'get'];
test('pages get GET only, and unexpected paths a 404, by every method', async () => {
  const redirect = '/docs/';
  const pages = ['/docs', redirect, '/docs/style.css', '/docs/icon.svg', '/openapi.json'];
  pages.push(...Object.keys(ERRORS).map((code) => `/docs/errors/${code}`));
  const paths = [
    ...'/ /docs/index.html /docs/style.css/ /docs/../package.json /docs/errors/'.split(' '),
    ...'/docs/errors/__proto__ /docs/errors/../../etc/passwd'.split(' '),
    ...'/v1/ /v2/ /v1/constructor /v3/ratelimit.limit /metrics /livez /.env'.split(' '),
    ...'/% /%00 /%ff /v1/ratelimits.limit%00 // ///////'.split(' '),
    `/${'a'.repeat(8_000)}`,
  ];
  let requests = 0;
  for (const path of [...paths, ...pages]) {
    const isPage = pages.includes(path);
    for (const method of METHODS) {
      const { status } = await sendRequest(server.port, { method, path });
      const found = path === redirect ? 308 : 200;
      const expected = isPage ? (method === 'GET' ? found : 405) : 404;
      expect([method, path.slice(0, 40), status]).toEqual([method, path.slice(0, 40), expected]);
      requests++;
    }
  }
  recordMeasurement('P10', 'pages, paths and methods', `${requests} requests`, '0 wrong');
});

test('a query that is invalid or too long gets a 400', async () => {
  const path = '/v1/ratelimits.getOverride';
  const statusOf = async (query: string) =>
    (await sendRequest(server.port, { method: 'GET', path: path + query })).status;
  const queries = [
    '?identifier=%ff',
    '?identifier=%ed%a0%80',
    '?identifier=%',
    '?identifier=%0',
    '?%ff=a',
  ];
  queries.push(
    '',
    '?',
    '?&&&',
    '?=',
    '?namespaceName=a',
    '?__proto__=a',
    `?identifier=${'x'.repeat(513)}`,
  );
  for (const query of queries) expect([query, await statusOf(query)]).toEqual([query, 400]);
  const last = '?namespaceName=no&identifier=b&namespaceName=stored&identifier=nothing&__proto__=1';
  expect(await statusOf(last)).toBe(404);
  expect(await statusOf(`?${'a=b&'.repeat(7_000)}namespaceName=stored&identifier=nothing`)).toBe(
    404,
  );
});

test('hostile requests to the admin port cause no 5xx, and it continues to serve', async () => {
  const { port } = new URL(server.adminUrl);
  const host = `Host: 127.0.0.1:${port}\r\n`;
  const sent = [
    `GET /metrics HTTP/1.0\r\n${host}\r\n`,
    `CONNECT a:443 HTTP/1.1\r\n${host}\r\n`,
    `OPTIONS * HTTP/1.1\r\n${host}\r\n`,
    `GET http://other.example/metrics HTTP/1.1\r\n${host}\r\n`,
    `GET /metrics HTTP/1.1\r\n\r\n`,
    `GET /metrics HTTP/1.1\r\nHost: other.example\r\n\r\n`,
    `GET /metrics HTTP/1.1\r\n${host}Origin: http://other.example\r\n\r\n`,
    `POST /metrics HTTP/1.1\r\n${host}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n`,
    `POST /metrics HTTP/1.1\r\n${host}Content-Length: 99999999999999999999\r\n\r\n`,
    `GET /metrics HTTP/1.1\r\n${host}Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n`,
    `GET /metrics HTTP/1.1\r\n${host}X : y\r\n\r\n`,
    `GET /${'a'.repeat(100_000)} HTTP/1.1\r\n${host}\r\n`,
    `GET /metrics HTTP/1.1\r\n${host}${'X: y\r\n'.repeat(5_000)}\r\n`,
    'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n',
    '\0'.repeat(1_000),
    ...HOSTILE_STRINGS.map((value) => `GET /${encodeURIComponent(value)} HTTP/1.1\r\n${host}\r\n`),
  ];
  const transcripts = await Promise.all(
    sent.map((bytes) => sendUntilClosed(Number(port), [bytes], 1_000)),
  );
  const wrong = transcripts.flatMap(({ statuses }, i) => {
    return statuses.some((status) => status >= 500) ? [sent[i].slice(0, 60)] : [];
  });
  expect(wrong).toEqual([]);
  expect((await fetch(`${server.adminUrl}/readyz`)).status).toBe(200);
  recordMeasurement('P10', 'the admin port', `${sent.length} requests`, '0 exits, 0 5xx');
});

test('500 connections with incomplete heads do not delay other clients', async () => {
  const sockets = Array.from({ length: 500 }, () => {
    const socket = connect(server.port, '127.0.0.1').on('error', () => {});
    socket.write(requestBytes({ body: '{}' }).subarray(0, 60));
    return socket;
  });
  const body = { identifier: 'other', limit: 1_000, duration: LONGEST_WINDOW_MS };
  for (let remaining = 999; remaining >= 900; remaining--) {
    expect((await sendCheck(server.port, body)).remaining).toBe(remaining);
  }
  for (const socket of sockets) socket.destroy();
});

/**
 * Input that somebody might send on purpose, over every operation: it is answered as it deserves,
 * nothing ends the process or makes it fail, no two names share a counter, and no request is decided
 * twice. What uWebSockets.js makes of odd heads by itself is pinned, and in the README.
 */

import { connect } from 'node:net';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { OPERATION_NAMES, OPERATIONS } from '../../src/api/common/operations.ts';
import {
  AMOUNT_MAX,
  DURATION_MAX_MS,
  IMPORT_MAX_BYTES,
  KEY_NAME_MAX_CHARACTERS,
  MULTI_LIMIT_MAX_BYTES,
  V2_DURATION_MAX_MS,
  WILDCARDS_PER_TEXT_MAX,
} from '../../src/core/constants.ts';
import { ERRORS } from '../../src/core/errors.ts';
import { IS_LONG, recordMeasurement } from '../support/guarantees.ts';
import {
  LONGEST_WINDOW_MS,
  type ParsedResponse,
  readMetrics,
  requestBytes,
  sendCheck,
  sendRequest,
} from '../support/http.ts';
import { HOSTILE_STRINGS } from '../support/mutations.ts';
import {
  COUNTER_OPERATIONS,
  callOperation,
  callOperationOk,
  type Fields,
  type Operation,
  pathAndMethodOf,
} from '../support/operations.ts';
import { sendUntilClosed } from '../support/raw-connection.ts';
import {
  ROOT_KEY,
  removeDirectory,
  type ServerProcess,
  startServer,
  temporaryDirectory,
} from '../support/server.ts';
import { hasOldParser } from '../support/uws-binaries.ts';

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

/** A body that each operation takes; a check costs something. */
const textField = (max: number, min = 1) => ({ min, max });
interface OperationShape {
  fields: Fields;
  texts?: Record<string, { min: number; max: number }>;
  integers?: Record<string, { min: number; max: number }>;
}
const one = { identifier: 'shape', duration: 60_000 };
const CHECK_V2: OperationShape = {
  fields: { ...one, limit: 1_000_000, namespace: 'shapes', cost: 1 },
  texts: { identifier: textField(512), namespace: textField(512) },
  integers: {
    limit: { min: 1, max: AMOUNT_MAX },
    duration: { min: 1_000, max: V2_DURATION_MAX_MS },
    cost: { min: 0, max: AMOUNT_MAX },
  },
};
const SHAPES: Partial<Record<Operation, OperationShape>> = {
  'ratelimits.limit': {
    fields: { ...one, limit: 1_000_000, namespace: 'shapes', cost: 1 },
    texts: { identifier: textField(512, 0), namespace: textField(512) },
    integers: {
      limit: { min: 1, max: AMOUNT_MAX },
      duration: { min: 1_000, max: DURATION_MAX_MS },
      cost: { min: 0, max: AMOUNT_MAX },
    },
  },
  'ratelimit.limit': CHECK_V2,
  'ratelimit.multiLimit': CHECK_V2,
  'ratelimits.refund': {
    fields: { ...one, namespace: 'shapes', reset: 60_000, cost: 1 },
    texts: { identifier: textField(512, 0), namespace: textField(512) },
    integers: { cost: { min: 0, max: AMOUNT_MAX } },
  },
  'ratelimits.reset': {
    fields: { ...one, namespace: 'shapes' },
    texts: { identifier: textField(512, 0), namespace: textField(512) },
    integers: { duration: { min: 1_000, max: DURATION_MAX_MS } },
  },
  'ratelimits.setOverride': {
    fields: { ...one, namespaceName: 'shapes', limit: 5 },
    texts: { identifier: textField(512, 3), namespaceName: textField(512) },
    integers: {
      limit: { min: 1, max: AMOUNT_MAX },
      duration: { min: 1_000, max: DURATION_MAX_MS },
    },
  },
  'ratelimit.setOverride': {
    fields: { ...one, namespace: 'shapes', limit: 5 },
    texts: { identifier: textField(512), namespace: textField(512) },
    integers: {
      limit: { min: 0, max: AMOUNT_MAX },
      duration: { min: 1_000, max: DURATION_MAX_MS },
    },
  },
  'ratelimits.deleteOverride': {
    fields: { identifier: 'shape', namespaceName: 'shapes' },
    texts: { identifier: textField(512, 0), namespaceName: textField(512) },
  },
  'ratelimit.deleteOverride': {
    fields: { identifier: 'shape', namespace: 'shapes' },
    texts: { identifier: textField(512), namespace: textField(512) },
  },
  'ratelimit.getOverride': {
    fields: { identifier: 'shape', namespace: 'shapes' },
    texts: { identifier: textField(512), namespace: textField(512) },
  },
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
/** A body with a field of its shape replaced by some JSON. */
const bodyWith = (operation: Operation, field: string, json: string): string => {
  const { fields } = SHAPES[operation]!;
  const parts = Object.entries(fields).map(([name, value]) => {
    return `"${name}":${name === field ? json : JSON.stringify(value)}`;
  });
  const item = `{${parts.join()}}`;
  return operation === 'ratelimit.multiLimit' ? `[${item}]` : item;
};
/** What a body is answered that nothing is wrong with: there may not be what it names. */
const IN_ORDER = [200, 404];

let bodies = 0;
/** Says what was answered otherwise, of all that is asked. */
async function findWrongStatuses(
  cases: [Operation, string | Uint8Array, number[]][],
): Promise<string[]> {
  const wrong: string[] = [];
  bodies += cases.length;
  for (let from = 0; from < cases.length; from += 8) {
    const few = cases.slice(from, from + 8);
    const answers = await Promise.all(
      few.map(([operation, body]) => sendOperation(operation, body)),
    );
    answers.forEach(({ status, body: said }, i) => {
      const [operation, body, statuses] = few[i];
      if (statuses.includes(status)) return;
      wrong.push(`${operation} ${String(body).slice(0, 200)}: ${status} ${said}`);
    });
  }
  return wrong;
}

test('every operation with a body has its shape', async () => {
  const posts = [...OPERATION_NAMES.filter((name) => OPERATIONS[name].method === 'POST')];
  expect([...POSTS].sort()).toEqual([...posts, ...COUNTER_OPERATIONS].sort());
  const whole = POSTS.map((operation): [Operation, string, number[]] => {
    return [operation, bodyWith(operation, '', ''), IN_ORDER];
  });
  expect(await findWrongStatuses(whole)).toEqual([]);
});

describe('a body, to every operation', () => {
  const nested = (depth: number) => '['.repeat(depth) + ']'.repeat(depth);

  test('of another shape, or no JSON, or no UTF-8, is a 400', async () => {
    const shapes = [
      '',
      ' ',
      'null',
      'true',
      '0',
      '-0',
      '1e400',
      '"text"',
      '[',
      '{',
      '}',
      '{]',
      '{,}',
    ];
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
      const bytes = [
        [0xff],
        [0xc0, 0x80],
        [0xed, 0xa0, 0x80],
        [0xf4, 0x90, 0x80, 0x80],
        [0xe2, 0x82],
      ];
      const noText = bytes.map((piece) => {
        return Buffer.concat([
          Buffer.from(`{"identifier":"`),
          Buffer.from(piece),
          Buffer.from('"}'),
        ]);
      });
      return [...wrong, ...noText].map((body): [Operation, string | Uint8Array, number[]] => {
        return [operation, body, [400]];
      });
    });
    expect(await findWrongStatuses(cases)).toEqual([]);
  });

  test('with any number is taken where it is a safe integer in bounds, and a 400 otherwise', async () => {
    const texts = [
      '-0',
      '-0.0',
      '0',
      '1',
      '1.0',
      '1e0',
      '1e3',
      '1E+3',
      '1000.5',
      '0.1',
      '-1',
      '1e400',
    ];
    texts.push('-1e400', '1e-400', '60000.0', '9007199254740991', '9007199254740992', '5e-324');
    texts.push(
      '9007199254740993',
      '18446744073709551616',
      '4294967296',
      '2147483648',
      '9'.repeat(400),
    );
    texts.push('null', 'true', '"1000"', '[]', '[1000]', '{}', '""', '1e9999999999', '0.1e4');
    const cases = POSTS.flatMap((operation) => {
      return Object.entries(SHAPES[operation]!.integers ?? {}).flatMap(([field, { min, max }]) => {
        const bounds = [min - 1, min, max, max + 1].map(String);
        return [...texts, ...bounds].map((json): [Operation, string, number[]] => {
          const value: unknown = JSON.parse(json);
          const isSafe = Number.isSafeInteger(value) && !Object.is(value, -0);
          const isTaken = isSafe && (value as number) >= min && (value as number) <= max;
          return [operation, bodyWith(operation, field, json), isTaken ? IN_ORDER : [400]];
        });
      });
    });
    expect(await findWrongStatuses(cases)).toEqual([]);
  });

  test('with any text is taken where it is as long as it may be, and a 400 otherwise', async () => {
    const cases = POSTS.flatMap((operation) => {
      return Object.entries(SHAPES[operation]!.texts ?? {}).flatMap(([field, { min, max }]) => {
        const lengths = [0, 1, min, max, max + 1].flatMap((length) => {
          return ['x', 'é', '😀', '\u0000'].map((character) => character.repeat(length));
        });
        return [...HOSTILE_STRINGS, ...lengths].map((value): [Operation, string, number[]] => {
          const { length } = [...value];
          const isTaken = length >= min && length <= max;
          const body = bodyWith(operation, field, JSON.stringify(value));
          return [operation, body, isTaken ? IN_ORDER : [400]];
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

  test('of 100 000 nested arrays, or of the most bytes, is answered', async () => {
    const deep = nested(100_000);
    const large = (bytes: number) => `["${'x'.repeat(bytes - 4)}"]`;
    const answered = POSTS.map((operation): [Operation, string, number[]] => {
      const takes1MiB =
        operation === 'ratelimit.multiLimit' || operation.endsWith('importOverrides');
      return [operation, deep, [takes1MiB ? 400 : 413]];
    });
    answered.push(['ratelimit.multiLimit', large(MULTI_LIMIT_MAX_BYTES), [400]]);
    answered.push(['ratelimit.multiLimit', large(MULTI_LIMIT_MAX_BYTES + 1), [413]]);
    answered.push(['ratelimits.importOverrides', large(IMPORT_MAX_BYTES), [400]]);
    answered.push(['ratelimits.importOverrides', large(IMPORT_MAX_BYTES + 1), [413]]);
    answered.push(['ratelimit.multiLimit', `[${'{},'.repeat(300_000)}{}]`, [400]]);
    answered.push(['ratelimit.multiLimit', `[${'"\\u0041",'.repeat(100_000)}1]`, [400]]);
    answered.push([
      'ratelimits.importOverrides',
      `{"overrides":[${'{},'.repeat(300_000)}1]}`,
      [400],
    ]);
    expect(await findWrongStatuses(answered)).toEqual([]);
    // Before they are values, which takes a third of a second.
    for (const operation of ['ratelimit.multiLimit', 'ratelimits.importOverrides'] as const) {
      expect((await sendOperation(operation, nested(500_000))).body).toContain('must hold at most');
    }
  });

  test('with keys of JavaScript is taken as one without them, or refused where it is strict', async () => {
    const names = ['__proto__', 'constructor', 'prototype', 'toString', 'hasOwnProperty', '\u0000'];
    const cases = POSTS.flatMap((operation) => {
      const isStrict = pathAndMethodOf(operation).path.startsWith('/v2/');
      return names.map((name): [Operation, string, number[]] => {
        const extra = `{${JSON.stringify(name)}:{"limit":1,"cost":0,"permissions":["*"]},`;
        const body = bodyWith(operation, '', '').replace('{', extra);
        return [operation, body, isStrict ? [400] : IN_ORDER];
      });
    });
    expect(await findWrongStatuses(cases)).toEqual([]);
  });
});

describe('names', () => {
  const PIECES = [
    'a',
    'b',
    'ab',
    ':',
    'a:',
    ':a',
    'a:b',
    'a/b',
    '/',
    '\u0000',
    'a\u0000',
    '\u0000a',
  ];
  PIECES.push(
    '|',
    'a|b',
    ',',
    '"',
    '\\',
    '","',
    '*',
    'a*',
    ' ',
    'a ',
    ' a',
    '\n',
    '1',
    '11',
    'é',
    'e\u0301',
  );

  test('of which two differ never share a counter, whatever stands between them', async () => {
    let pairs = 0;
    for (const namespace of PIECES) {
      const texts = ['', ...PIECES];
      const left = await Promise.all(
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
      expect([namespace, left]).toEqual([namespace, texts.map(() => 9)]);
    }
    recordMeasurement('P1', 'delimiters in names', `${pairs} pairs`, '0 share a counter');
  });

  test('are each their own, and come back as they were', async () => {
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
      const of = { namespace: 'kept', identifier };
      const set = await callOperation(server.port, 'ratelimit.setOverride', {
        ...of,
        limit: 7,
        duration: 60_000,
      });
      expect([identifier, set.status]).toEqual([identifier, 200]);
      const { data: found } = await callOperationOk(server.port, 'ratelimit.getOverride', of);
      expect(found).toMatchObject({ identifier, limit: 7 });
      const query = { namespaceName: 'kept', identifier };
      expect(await callOperationOk(server.port, 'ratelimits.getOverride', query)).toMatchObject({
        identifier,
      });
      await callOperationOk(server.port, 'ratelimit.deleteOverride', of);
    }
    expect(
      (await callOperation(server.port, 'ratelimit.listOverrides', { namespace: 'kept' })).body,
    ).toContain('"data":[]');
  });
});

test('patterns made to be slow do not keep a thread busy', async () => {
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
  const texts = ['a', 'ab', 'ba', 'aab', 'aaab'].flatMap((piece) => {
    return ['', 'b', 'c'].map((end) => piece.repeat(500 / piece.length) + end);
  });
  let governed = 0;
  let mostMs = 0;
  for (const identifier of texts) {
    const from = performance.now();
    const body = { namespace: 'slow', identifier, limit: 1, duration: LONGEST_WINDOW_MS, cost: 0 };
    const { limit } = await sendCheck(server.port, body);
    mostMs = Math.max(mostMs, performance.now() - from);
    const matches = patterns.some((pattern) => {
      return matchesPattern(pattern.split('*'), identifier);
    });
    expect([identifier, limit]).toEqual([identifier, matches ? 77 : 1]);
    if (matches) governed++;
  }
  const measured = `${governed} matched, each answered, ${mostMs.toFixed(1)} ms at most`;
  recordMeasurement(
    'P10',
    'patterns made to be slow',
    `${texts.length} texts, ${overrides.length}`,
    measured,
  );
  expect([governed > 0, governed < texts.length]).toEqual([true, true]);
});

/** Whether segments stand in a text in their order, the first at its beginning, the last at its end. */
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
  /** The usual head with lines put in, and the body. */
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
  const inOrder = (size: string, body: string) => `${size}\r\n${body}\r\n0\r\n\r\n`;

  /** By what it is, and the statuses that it is answered. */
  const REFUSED: [string, string, Make][] = [
    ['an empty length', '505', withLength(() => '')],
    ['a list of lengths', '400', withLength((n) => ` ${n}, ${n}`)],
    ['a length with a sign', '400', withLength((n) => ` +${n}`)],
    ['a length in hexadecimal', '400', withLength((n) => ` 0x${n.toString(16)}`)],
    ['a length with a fraction', '400', withLength((n) => ` ${n}.0`)],
    ['a length in two words', '400', withLength((n) => ` 1 ${n}`)],
    ['a length of many digits', '400', withLength((n) => ` ${'0'.repeat(27)}${n}`)],
    ['a length beyond 64 bits', '400', withLength((n) => ` ${2n ** 64n + BigInt(n)}`)],
    ['a negative chunk', '400', chunks((size, body) => inOrder(`-${size}`, body))],
    ['a chunk size with 0x', '400', chunks((size, body) => inOrder(`0x${size}`, body))],
    ['a chunk beyond all bounds', '400', chunks((_, body) => inOrder('f'.repeat(16), body))],
    [
      'a chunk of 2^60 and the size',
      '400',
      chunks((size, body) => inOrder(`1${size.padStart(15, '0')}`, body)),
    ],
    ['a quoted chunk extension', '400', chunks((size, body) => inOrder(`${size};a="\n"`, body))],
    ['101 lines', '431', withLines('X: y\r\n'.repeat(101))],
    ['5 000 lines', '431', withLines('X: y\r\n'.repeat(5_000))],
    ['a line that does not end', '431', () => `${LINE}${HOST}X: ${'y'.repeat(100_000)}`],
    ['only bare line feeds', '505', (body) => withLines('')(body).replaceAll('\r', '')],
    ['NUL in its path', '505', withLine('POST /v1/ratelimits.limit\0 HTTP/1.1\r\n')],
    ['two spaces in its line', '505', withLine('POST  /v1/ratelimits.limit HTTP/1.1\r\n')],
    ['tabs in its line', '505', withLine('POST\t/v1/ratelimits.limit\tHTTP/1.1\r\n')],
    ['HTTP/1.2', '505', withLine('POST /v1/ratelimits.limit HTTP/1.2\r\n')],
    ['http/1.1', '505', withLine('POST /v1/ratelimits.limit http/1.1\r\n')],
    ['an absolute target', '505', withLine('POST http://a/v1/ratelimits.limit HTTP/1.1\r\n')],
    ['the target *', '505', () => `OPTIONS * HTTP/1.1\r\n${HOST}\r\n`],
    ['CONNECT', '505', () => `CONNECT a:443 HTTP/1.1\r\n${HOST}\r\n`],
    ['the PROXY protocol', '505', withLine(`PROXY TCP4 1.1.1.1 2.2.2.2 1 2\r\n${LINE}`)],
    ['TLS', '505', () => `\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03${'\0'.repeat(200)}`],
  ];
  /** By what it is, the statuses, and what is charged. */
  const ANSWERED: [string, string, number, Make][] = [
    ['a percent-encoded path', '404', 0, withLine('POST /v1/ratelimits%2Elimit HTTP/1.1\r\n')],
    ['a dot in its path', '404', 0, withLine('POST /v1/./ratelimits.limit HTTP/1.1\r\n')],
    ['two dots in its path', '404', 0, withLine('POST /v2/../v1/ratelimits.limit HTTP/1.1\r\n')],
    ['capitals in its path', '404', 0, withLine('POST /V1/ratelimits.limit HTTP/1.1\r\n')],
    ['a slash at its end', '404', 0, withLine('POST /v1/ratelimits.limit/ HTTP/1.1\r\n')],
    ['a path that is no UTF-8', '404', 0, withLine('POST /v1/\xff\xfe HTTP/1.1\r\n')],
    ['a small method', '405', 0, withLine('post /v1/ratelimits.limit HTTP/1.1\r\n')],
    ['CONNECT to a path', '405', 0, withLine('CONNECT /v1/ratelimits.limit HTTP/1.1\r\n')],
    ['TRACE', '405', 0, withLine('TRACE /v1/ratelimits.limit HTTP/1.1\r\n')],
    ['a wrong key first', '401', 0, withLines('Authorization: Bearer wrong\r\n')],
    ['a wrong key behind', '200', 1, withLength((n) => ` ${n}\r\nAuthorization: Bearer wrong`)],
    hasOldParser
      ? ['two hosts', '200', 1, withLines('Host: b\r\n')]
      : ['two hosts', '400', 0, withLines('Host: b\r\n')],
    ['the same length twice', '200', 1, withLength((n) => ` ${n}\r\nContent-Length: ${n}`)],
    ['zeros before its length', '200', 1, withLength((n) => ` 000${n}`)],
    ['blanks behind its length', '200', 1, withLength((n) => ` ${n} \t`)],
    ['a Transfer-Encoding that is none', '400', 0, chunks(inOrder, 'identity')],
    ['an empty Transfer-Encoding', '200', 1, withLines('Transfer-Encoding:\r\n')],
    ['any coding that ends so', '400', 0, chunks(inOrder, 'gzip, xchunked')],
    ['bare line feeds in chunks', '200', 1, chunks((size, body) => `${size}\n${body}\n0\n\n`)],
    [
      'any two bytes behind a chunk',
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
  test('that is odd in other ways is answered as one request, and charged once at most', async () => {
    const heard = await Promise.all(
      ANSWERED.map(async ([what, , , make]) => {
        const { statuses } = await sendUntilClosed(server.port, [make(bodyOf(what))], 500);
        return [what, statuses.join(), await used(what)];
      }),
    );
    expect(heard).toEqual(ANSWERED.map(([what, statuses, charged]) => [what, statuses, charged]));
  });

  /** By what it is, and what the platform packages answer; to uws-pack all of them have not ended. */
  const ENDED_BY_SOME: [string, string, Make][] = [
    ['a blank before a colon', '400', withLines('X : y\r\n')],
    ['a tab before a colon', '400', withLines('X\t: y\r\n')],
    ['Transfer-Encoding with a blank', '400', withLines('Transfer-Encoding : chunked\r\n')],
    ['a line that begins with a blank', '400', withLines(' Transfer-Encoding: chunked\r\n')],
    ['a folded line', '400', withLines('X: y\r\n z\r\n')],
    ['a bare line feed', '400', withLines('X: y\n')],
    ['NUL in a value', '400', withLines('X: y\0z\r\n')],
    ['NUL in a name', '400', withLines('X\0: y\r\n')],
    ['no colon', '400', withLines('nothing\r\n')],
    ['HTTP/0.9', '505', () => 'GET /\r\n'],
  ];
  if (!hasOldParser) REFUSED.push(...ENDED_BY_SOME);

  /** To uWebSockets.js these heads or bodies have not ended. */
  const UNENDED: [string, Make][] = [
    ...(hasOldParser ? ENDED_BY_SOME.map(([what, , make]): [string, Make] => [what, make]) : []),
    ['a bare carriage return', withLines('X: y\r')],
    ['empty lines before it', (body) => `\r\n\r\n${withLines('')(body)}`],
    ['a length that is too long', withLength((n) => ` ${n + 1}`)],
    ['a length of 2^32 and the right one', withLength((n) => ` ${2 ** 32 + n}`)],
    ['a chunk of 2 GiB', chunks((_, body) => inOrder('7fffffff', body))],
    ['a chunk extension', chunks((size, body) => inOrder(`${size};a=b`, body))],
  ];
  test.each(REFUSED)(
    'with %s is a %s of uWebSockets.js, and closes',
    async (what, status, make) => {
      const { statuses, weirResponses, isClosed } = await sendUntilClosed(
        server.port,
        [make(bodyOf(what))],
        10_000,
      );
      expect([statuses.join(), weirResponses, isClosed]).toEqual([status, 0, true]);
      expect(await used(what)).toBe(0);
    },
  );

  test('that has not ended is not answered, charged nothing, and closed after some 10 s', async () => {
    const heard = await Promise.all(
      UNENDED.map(async ([what, make]) => {
        const waitMs = IS_LONG ? 20_000 : 300;
        const { statuses, isClosed } = await sendUntilClosed(
          server.port,
          [make(bodyOf(what))],
          waitMs,
        );
        return [what, statuses.join(), isClosed, await used(what)];
      }),
    );
    expect(heard).toEqual(UNENDED.map(([what]) => [what, '', IS_LONG, 0]));
  });

  test('of a request that is too short, or hides another, is never two decisions on one', async () => {
    const short = withLength((n) => ` ${n - 1}`)(bodyOf('short'));
    expect((await sendUntilClosed(server.port, [short], 300)).statuses).not.toContain(200);
    expect(await used('short')).toBe(0);
    // Nothing behind a line without a name is seen, and nothing behind this request is served.
    const nameless = withLength((n) => ` ${n}`)(bodyOf('nameless')).replace(
      'Content-Length',
      ': y\r\nContent-Length',
    );
    expect((await sendUntilClosed(server.port, [nameless], 300)).statuses).not.toContain(200);
    expect(await used('nameless')).toBe(0);
    // The end of the last chunk is two bytes, whatever they are: here of the request behind it.
    const hidden = chunks((size, body) => `${size}\r\n${body}\r\n0\r\n`)(bodyOf('first'));
    const behind = withLines('')(bodyOf('second'));
    const { statuses, isClosed } = await sendUntilClosed(server.port, [hidden + behind], 300);
    expect([statuses, isClosed]).toEqual([[], true]);
    expect([await used('first'), await used('second')]).toEqual([1, 0]);
  });

  test('is noted as what it was tried with', () => {
    const all = REFUSED.length + ANSWERED.length + UNENDED.length + 3;
    const measured = `${REFUSED.length} refused and closed, ${UNENDED.length} unended, 0 decided twice`;
    recordMeasurement('P3', 'ambiguous and broken heads', `${all} heads`, measured);
  });
});

test('pages and paths that nobody should ask for are a page, a 404 or a 405', async () => {
  const codes = Object.keys(ERRORS);
  const paths = [
    '/',
    '/docs',
    '/docs/errors/',
    '/docs/errors/__proto__',
    '/docs/errors/../../etc/passwd',
  ];
  paths.push(
    '/v1/',
    '/v2/',
    '/v1/constructor',
    '/v3/ratelimit.limit',
    '/metrics',
    '/livez',
    '/.env',
  );
  paths.push(
    `/${'a'.repeat(8_000)}`,
    '/%',
    '/%00',
    '/%ff',
    '/v1/ratelimits.limit%00',
    '//',
    '///////',
  );
  let asked = 0;
  for (const path of [...paths, ...codes.map((code) => `/docs/errors/${code}`)]) {
    const isPage = codes.some((code) => path === `/docs/errors/${code}`);
    for (const method of [
      'GET',
      'POST',
      'PUT',
      'DELETE',
      'PATCH',
      'OPTIONS',
      'TRACE',
      'BREW',
      'get',
    ]) {
      const { status } = await sendRequest(server.port, { method, path });
      const right = isPage ? (method === 'GET' ? 200 : 405) : 404;
      expect([method, path.slice(0, 40), status]).toEqual([method, path.slice(0, 40), right]);
      asked++;
    }
  }
  recordMeasurement('P10', 'pages, paths and methods', `${asked} requests`, '0 wrong');
});

test('queries that are no text, or too much of it, are a 400', async () => {
  const path = '/v1/ratelimits.getOverride';
  const ask = async (query: string) =>
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
  for (const query of queries) expect([query, await ask(query)]).toEqual([query, 400]);
  const last = '?namespaceName=no&identifier=b&namespaceName=kept&identifier=nothing&__proto__=1';
  expect(await ask(last)).toBe(404);
  expect(await ask(`?${'a=b&'.repeat(7_000)}namespaceName=kept&identifier=nothing`)).toBe(404);
});

test('the admin port answers whatever is sent, and serves on', async () => {
  const { port } = new URL(server.adminUrl);
  const host = `Host: 127.0.0.1:${port}\r\n`;
  const sent = [
    `GET /metrics HTTP/1.0\r\n${host}\r\n`,
    `CONNECT a:443 HTTP/1.1\r\n${host}\r\n`,
    `OPTIONS * HTTP/1.1\r\n${host}\r\n`,
    `GET http://elsewhere/metrics HTTP/1.1\r\n${host}\r\n`,
    `GET /metrics HTTP/1.1\r\n\r\n`,
    `GET /metrics HTTP/1.1\r\nHost: elsewhere\r\n\r\n`,
    `GET /metrics HTTP/1.1\r\n${host}Origin: http://elsewhere\r\n\r\n`,
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
  const heard = await Promise.all(
    sent.map((bytes) => sendUntilClosed(Number(port), [bytes], 1_000)),
  );
  const wrong = heard.flatMap(({ statuses }, i) => {
    return statuses.some((status) => status >= 500) ? [sent[i].slice(0, 60)] : [];
  });
  expect(wrong).toEqual([]);
  expect((await fetch(`${server.adminUrl}/readyz`)).status).toBe(200);
  recordMeasurement('P10', 'the admin port', `${sent.length} requests`, '0 exits, 0 5xx');
});

test('many at once, whose heads never end, keep nobody else from being answered', async () => {
  const sockets = Array.from({ length: 500 }, () => {
    const socket = connect(server.port, '127.0.0.1').on('error', () => {});
    socket.write(requestBytes({ body: '{}' }).subarray(0, 60));
    return socket;
  });
  const body = { identifier: 'beside', limit: 1_000, duration: LONGEST_WINDOW_MS };
  for (let left = 999; left >= 900; left--) {
    expect((await sendCheck(server.port, body)).remaining).toBe(left);
  }
  for (const socket of sockets) socket.destroy();
});

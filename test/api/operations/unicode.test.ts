/**
 * Text that is not well-formed Unicode. As bytes it gets a 400 anywhere in a body. As an escape of a
 * lone surrogate it gets a 400 in every field that the service reads, and only there.
 */

import { describe, expect, test } from 'vitest';
import { LONGEST_WINDOW_MS, type ParsedResponse } from '../../support/http.ts';
import { type Fields, type Operation, pathAndMethodOf } from '../../support/operations.ts';
import { useServer } from '../../support/test-server.ts';

/** A placeholder in a body, which raw bytes replace. */
const HERE = 'HERE';

const check = { namespace: 'n', identifier: 'i', limit: 5, duration: 60_000 };
const counted = { namespace: 'n', identifier: 'i', duration: LONGEST_WINDOW_MS };
const one = { namespaceName: 'n', identifier: 'abc' };
const terms = { limit: 5, duration: 60_000 };

/** An operation, a body with the text, and the location in its error. */
type FieldLocation = [operation: Operation, body: Fields | Fields[], location: string];

const READ: FieldLocation[] = [
  ['ratelimits.limit', { ...check, identifier: HERE }, 'identifier'],
  ['ratelimits.limit', { ...check, resources: [{}, { name: HERE }] }, 'resources[1].name'],
  ['ratelimits.reset', { ...counted, namespace: HERE }, 'namespace'],
  ['ratelimits.setOverride', { ...one, ...terms, namespaceName: HERE }, 'namespaceName'],
  [
    'ratelimits.importOverrides',
    { overrides: [{ ...one, ...terms, identifier: HERE }] },
    'overrides[0]: "identifier',
  ],
  ['keys.create', { name: HERE, permissions: ['*'] }, 'name'],
  ['ratelimit.limit', { ...check, namespace: HERE }, 'namespace'],
  ['ratelimit.multiLimit', [check, { ...check, identifier: HERE }], '[1]: "identifier'],
  ['ratelimit.getOverride', { namespace: HERE, identifier: 'abc' }, 'namespace'],
];

const NOT_READ: [name: string, operation: Operation, body: Fields][] = [
  ['a text and a field name in "meta"', 'ratelimits.limit', { ...check, meta: { [HERE]: [HERE] } }],
  ['an unknown field', 'ratelimits.limit', { ...check, [HERE]: HERE }],
  ['the same in a resource', 'ratelimits.limit', { ...check, resources: [{ other: HERE }] }],
  ['the same in a reset', 'ratelimits.reset', { ...counted, [HERE]: HERE }],
  [
    'the same in an override of an import',
    'ratelimits.importOverrides',
    { overrides: [{ ...one, ...terms, unknown: HERE }], dryRun: true },
  ],
];

const LONE_SURROGATES = ['\\ud800', 'a\\uDFFFb', '\\ude00\\ud83d', '\\ud83d\\ud83d\\ude00'];
const ILL_FORMED = [[0x80], [0xff], [0xc3], [0xc0, 0xaf], [0xed, 0xa0, 0x80], [0xf5, 0x80, 0x80]];

describe('text that is not well-formed Unicode', () => {
  const server = useServer();

  /** Sends a body with these bytes in place of each `HERE`. */
  function send(
    operation: Operation,
    fields: Fields | Fields[],
    bytes: Buffer,
  ): Promise<ParsedResponse> {
    const text = JSON.stringify(fields).replaceAll(HERE, bytes.toString('latin1'));
    const { path } = pathAndMethodOf(operation);
    return server.send({ path, body: Buffer.from(text, 'latin1') });
  }

  test.each(READ)('as an escape gets a 400 in %s %j', async (operation, body, location) => {
    for (const lone of LONE_SURROGATES) {
      const response = await send(operation, body, Buffer.from(lone));
      expect([lone, response.status]).toEqual([lone, 400]);
      const { message = '', detail = '' } = JSON.parse(response.body).error;
      const quote = location.includes('"') ? '' : '"';
      const expected = `${quote}${location}" must be well-formed Unicode; got a lone surrogate`;
      expect(message + detail).toBe(expected);
    }
  });

  test.each(NOT_READ)('as an escape is accepted in %s', async (_, operation, body) => {
    for (const lone of LONE_SURROGATES) {
      const response = await send(operation, body, Buffer.from(lone));
      expect([lone, response.status, response.body]).toEqual([lone, 200, response.body]);
    }
  });

  test('as bytes gets a 400 in all of these fields', async () => {
    const places = [
      ...READ,
      ...NOT_READ.map(([, operation, body]): FieldLocation => [operation, body, '']),
    ];
    for (const [operation, body] of places) {
      for (const bytes of ILL_FORMED) {
        const response = await send(operation, body, Buffer.from(bytes));
        expect([operation, body, response.status]).toEqual([operation, body, 400]);
        expect(response.body).toContain('the body is not valid UTF-8');
      }
    }
  });
});

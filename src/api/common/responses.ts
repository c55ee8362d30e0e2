/**
 * The schemas of error responses, and fields that several responses have. They document the API,
 * and tests compare responses with them. The code uses their types only: each is a function that no
 * thread of a server calls, so that the bundle does not contain it.
 */

import Type, { type Static, type TSchema } from 'typebox';
import { AMOUNT_MAX } from '../../core/constants.ts';
import { ERRORS, type ErrorCode } from '../../core/errors.ts';
import { field } from '../../core/schema.ts';

/** An integer from 0 up to the largest one that a double holds exactly. */
export function amount(description: string) {
  return Type.Integer({ minimum: 0, maximum: AMOUNT_MAX, description });
}

export function unixMs(description: string) {
  return amount(`${description}, in Unix milliseconds.`);
}

export function named(description: string) {
  return Type.String({ description });
}

export function flagged(description: string) {
  return Type.Boolean({ description });
}

/** @param prefix of the ids, without its underscore */
export function idText(prefix: string, description: string) {
  return Type.String({ pattern: `^${prefix}_`, description });
}

export function namespaceId(description: string) {
  return idText('rlns', description);
}

export function keyId(description: string) {
  return idText('key', description);
}

export function listOf<S extends TSchema>(items: S, description: string) {
  return Type.Array(items, { description });
}

/** The 200 of an operation that has nothing to say. */
export function empty() {
  return Type.Object({}, { description: 'An empty object.' });
}

/** What v2 wraps the result of an operation in. */
export function envelope<S extends TSchema>(data: S) {
  return Type.Object({ meta: meta(), data });
}

export function meta() {
  return Type.Object({ requestId: requestId() });
}

export const REMAINING =
  'Tokens that are left in the window, or with `gcra` in the bucket. After a denial these are ' +
  'the tokens for checks of a smaller cost; with `sliding` the field is 0.';
export const RESET =
  'End of the window, in Unix milliseconds. With `gcra` it is the time at which the bucket is ' +
  'full again. After a denial with `gcra` it is the time at which a check of this cost would pass.';

/** The state of the limit after a check. */
export function limitFields() {
  return {
    limit: amount('The limit of the check, or of the override that applied.'),
    remaining: amount(REMAINING),
    reset: amount(RESET),
  };
}

/** The fields of a list, beside its items. */
export function pageState() {
  return {
    cursor: Type.Optional(named('The `cursor` of the next page. It is absent on the last page.')),
    total: amount('Number of items on all pages.'),
  };
}

function requestId() {
  return idText('req', 'Id of the request. The log has the cause of a 500 under this id.');
}

export function errorV1() {
  const codes = Type.Enum(Object.keys(ERRORS) as ErrorCode[]);
  return Type.Object({
    error: Type.Object({
      code: field(codes, 'Code of the error.'),
      docs: Type.String({
        format: 'uri-reference',
        description: 'Page of this server about the code. It is served without a key.',
      }),
      message: named('What is wrong: the field, the value received and the values accepted.'),
      requestId: requestId(),
    }),
  });
}

export function errorV2() {
  return Type.Object({
    meta: meta(),
    error: Type.Object({
      title: named('Reason phrase of the HTTP status.'),
      detail: named('What is wrong: the field, the value received and the values accepted.'),
      status: Type.Integer({ minimum: 400, maximum: 599, description: 'HTTP status.' }),
      type: Type.String({
        format: 'uri-reference',
        description: 'Page of this server about the error. It is served without a key.',
      }),
      errors: Type.Optional(
        listOf(
          Type.Object({
            location: named('Where the error is, as in `body[3].limit`.'),
            message: named('What is wrong there.'),
            fix: Type.Optional(named('How to correct the request.')),
          }),
          'Present on a 400.',
        ),
      ),
    }),
  });
}

export type ErrorV1 = Static<ReturnType<typeof errorV1>>;
export type ErrorV2 = Static<ReturnType<typeof errorV2>>;

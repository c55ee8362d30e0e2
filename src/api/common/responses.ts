/**
 * The schemas of error responses, and fields that several responses have. They document the API,
 * and tests compare responses with them. The code uses their types only, so a running server loads
 * none of them.
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

export function listOf<S extends TSchema>(items: S, description: string) {
  return Type.Array(items, { description });
}

export const REMAINING =
  'Tokens that are left in the window, or with `gcra` in the bucket. After a denial these are ' +
  'the tokens for checks of a smaller cost; with `sliding` the field is 0.';
export const RESET =
  'End of the window, in Unix milliseconds. With `gcra` it is the time at which the bucket is ' +
  'full again. After a denial with `gcra` it is the time at which a check of this cost would pass.';

/** The state of the limit after a check. */
export const limitFields = {
  limit: amount('The limit of the check, or of the override that applied.'),
  remaining: amount(REMAINING),
  reset: amount(RESET),
};

/** Of an override. */
export const overrideEnd = Type.Optional(
  unixMs('Time at which the override ends by itself. Absent if it has no end'),
);

/** How often an override was used. */
export const overrideUsage = Type.Optional(
  Type.Object(
    {
      applied: Type.Integer({
        minimum: 0,
        description: 'Number of checks to which the override applied, whether allowed or denied.',
      }),
      lastAppliedAt: Type.Optional(
        amount('Time of the last of them, in Unix milliseconds. Absent if there was none.'),
      ),
      since: unixMs('Time from which on checks were counted'),
    },
    {
      description:
        'How often the override has applied on the machine that answers. Only if the request has ' +
        '`usage`. Absent while it cannot be read.',
    },
  ),
);

/** Of the next page; absent on the last one. */
export const nextCursor = Type.Optional(
  named('The `cursor` of the next page. It is absent on the last page.'),
);
export const total = amount('Number of items on all pages.');

const requestId = idText('req', 'Id of the request. The log has the cause of a 500 under this id.');
const errorCode = Type.Enum(Object.keys(ERRORS) as ErrorCode[]);

export const errorV1 = Type.Object({
  error: Type.Object({
    code: field(errorCode, 'Code of the error.'),
    docs: Type.String({
      format: 'uri-reference',
      description: 'Page of this server about the code. It is served without a key.',
    }),
    message: named('What is wrong: the field, the value received and the values accepted.'),
    requestId,
  }),
});

export const meta = Type.Object({ requestId });

export const errorV2 = Type.Object({
  meta,
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

export type ErrorV1 = Static<typeof errorV1>;
export type ErrorV2 = Static<typeof errorV2>;

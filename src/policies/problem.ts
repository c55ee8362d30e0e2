/**
 * The body of a denial, a problem of RFC 9457. The schema documents the API; a running server uses
 * its type only.
 */

import Type, { type Static } from 'typebox';

export const PROBLEM = Type.Object({
  type: Type.String({ format: 'uri', description: 'The kind of problem, in a registry of IANA.' }),
  title: Type.String({ description: 'What the kind of problem means.' }),
  status: Type.Literal(429, { description: 'HTTP status.' }),
  detail: Type.Optional(
    Type.String({ description: 'When to send the request again, or why it is denied.' }),
  ),
  'violated-policies': Type.Optional(
    Type.Array(Type.String(), { description: 'Names of the windows that deny the request.' }),
  ),
});

export type Problem = Static<typeof PROBLEM>;

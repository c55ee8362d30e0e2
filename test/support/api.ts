/** The operations, each in one line. */

import type { OperationName } from '../../src/api/operations.ts';
import { OPERATIONS } from '../../src/api/operations.ts';
import { type Answer, request } from './http.ts';
import { ROOT_KEY } from './server.ts';

export type Fields = Record<string, unknown>;

/** The fields go into the body of a POST, or the query of a GET. */
export function operate(
  port: number,
  operation: OperationName,
  fields: Fields = {},
  key: string = ROOT_KEY,
): Promise<Answer> {
  const headers = { Authorization: `Bearer ${key}` };
  const path = `/v1/${operation}`;
  const { method } = OPERATIONS[operation];
  if (method === 'POST') return request(port, { path, headers, body: JSON.stringify(fields) });
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(fields)) query.set(name, String(value));
  return request(port, { method, path: `${path}?${query}`, headers });
}

/** The answer's body; fails unless it was a 200. */
export async function done(
  port: number,
  operation: OperationName,
  fields: Fields = {},
  key: string = ROOT_KEY,
): Promise<Fields> {
  const answer = await operate(port, operation, fields, key);
  if (answer.status !== 200) throw new Error(`${answer.status} ${answer.body}`);
  return JSON.parse(answer.body);
}

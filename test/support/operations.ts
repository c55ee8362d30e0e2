/** Calls API operations. */

import { pathOf } from '../../src/api/common/operation.ts';
import {
  COUNTER_OPERATION_NAMES,
  COUNTER_OPERATIONS,
} from '../../src/api/operations/counter-operations.ts';
import type { ApiOperation } from '../../src/api/operations/documentation.ts';
import { OPERATIONS } from '../../src/api/operations/main-operations.ts';
import {
  type LimitResponse,
  type ParsedResponse,
  type RequestParts,
  readMetric,
  sendCheck,
  sendRequest,
} from './http.ts';
import { ROOT_KEY, waitUntil } from './server.ts';

export { COUNTER_OPERATION_NAMES };
export type Fields = Record<string, unknown>;

export type Operation = ApiOperation;
const ALL = { ...OPERATIONS, ...COUNTER_OPERATIONS };

export function pathAndMethodOf(operation: Operation): { path: string; method: 'GET' | 'POST' } {
  return { path: pathOf(ALL[operation]), method: ALL[operation].method };
}

/** Sends the fields in the body of a POST, or in the query of a GET. */
export function callOperation(
  port: number,
  operation: Operation,
  fields: Fields | Fields[] = {},
  key: string = ROOT_KEY,
): Promise<ParsedResponse> {
  const headers = { Authorization: `Bearer ${key}` };
  const { path, method } = pathAndMethodOf(operation);
  if (method === 'POST') return sendRequest(port, { path, headers, body: JSON.stringify(fields) });
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(fields)) query.set(name, String(value));
  return sendRequest(port, { method, path: `${path}?${query}`, headers });
}

/** Returns the response body. Rejects unless the status is 200. */
export async function callOperationOk(
  port: number,
  operation: Operation,
  fields: Fields | Fields[] = {},
  key: string = ROOT_KEY,
): Promise<Fields> {
  const answer = await callOperation(port, operation, fields, key);
  if (answer.status !== 200) throw new Error(`${answer.status} ${answer.body}`);
  return JSON.parse(answer.body);
}

/** The status and the message of an error, in both versions. */
export async function errorOf(
  ...call: Parameters<typeof callOperation>
): Promise<[status: number, message: string]> {
  const { status, body } = await callOperation(...call);
  const { error } = JSON.parse(body);
  return [status, error.message ?? error.detail];
}

type OperationCall = [operation: Operation, fields?: Fields | Fields[], key?: string];

/** Short calls to one server. */
export interface ApiClient {
  call: (...call: OperationCall) => Promise<ParsedResponse>;
  /** The response body. Rejects unless the status is 200. */
  ok: <T = Fields>(...call: OperationCall) => Promise<T>;
  errorOf: (...call: OperationCall) => ReturnType<typeof errorOf>;
  /** A check of v1. Rejects unless the status is 200. */
  check: (body: object, headers?: Record<string, string>) => Promise<LimitResponse>;
  send: (parts: RequestParts) => Promise<ParsedResponse>;
  metric: (name: string) => Promise<number>;
  /** The first page of namespaces. */
  namespaces: () => Promise<{ id: string; name: string }[]>;
  /** The id of a namespace, which exists some ms after its first check. */
  namespaceId: (name: string) => Promise<string>;
}

/** @param server may start later, and again: its ports are read by each call */
export function apiClient(server: { port: number; adminUrl: string }): ApiClient {
  const ok = async <T = Fields>(...call: OperationCall) => {
    return (await callOperationOk(server.port, ...call)) as T;
  };
  const namespaces = async () => {
    return (await ok<{ namespaces: { id: string; name: string }[] }>('ratelimits.listNamespaces'))
      .namespaces;
  };
  return {
    call: (...call) => callOperation(server.port, ...call),
    ok,
    errorOf: (...call) => errorOf(server.port, ...call),
    check: (body, headers) => sendCheck(server.port, body, headers),
    send: (parts) => sendRequest(server.port, parts),
    metric: (name) => readMetric(server.adminUrl, name),
    namespaces,
    namespaceId: async (name) => {
      let id: string | undefined;
      await waitUntil(`${name} has an id`, async () => {
        id = (await namespaces()).find((one) => one.name === name)?.id;
        return id !== undefined;
      });
      return id!;
    },
  };
}

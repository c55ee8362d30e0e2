/** What several examples have: ids, times, and the responses of errors. */

import { ERRORS, type ErrorCode, statusOf } from '../../core/errors.ts';
import { NO_FIGURES } from '../../core/figures.ts';
import { ERROR_PAGES_PATH, EXAMPLE_BASE_URL } from '../common/paths.ts';
import type { Version } from '../common/versions.ts';

export const REQUEST_ID = 'req_732be5619067ac98cad7fd0a_0';
const DOCS_URL = EXAMPLE_BASE_URL + ERROR_PAGES_PATH;
export const NAMESPACE_ID = 'rlns_0c6a4e7a1d4f4b6f0a3a9b52';
export const OVERRIDE_ID = 'rlor_790becb6effb09af04b82f13';
/** The end of an override: 2100-01-01. */
export const END = 4_102_444_800_000;
export const KEY_ID = 'key_23d70cfe6912bd5c8cab0f36';
export const RESET = 1795179600000;
export const RESERVATION_ID = 'rlrs_AAAAEHBWj0m2kSf9DwYxmg';
export const LEASE_ID = 'rlls_AAAAE2FD1kTq4JrB0yVbcA';
/** The end of a hold of 30 s. */
export const HOLD_END = 1795179570000;
export const NO_RESERVATION_ID = 'rlrs_AAAAAAAAAAAAAAAAAAAAAA';
export const NO_LEASE_ID = 'rlls_AAAAAAAAAAAAAAAAAAAAAA';
/** What an inspection shows of an identifier without holds. */
export const NO_HOLDS = { reserved: 0, inUse: 0, live: 0, list: [] };
export const HOUR_MS = 3_600_000;
export const FIGURES = {
  ...NO_FIGURES,
  allowed: 1,
  denied: 1,
  tokensAllowed: 100,
  tokensDenied: 1,
};

/** The body of an error. */
export function errorBody(version: Version, code: ErrorCode, message: string): object {
  return version === 'v1' ? errorBodyV1(code, message) : errorBodyV2(code, message);
}

export function errorBodyV1(code: ErrorCode, message: string) {
  return { error: { code, docs: DOCS_URL + code, message, requestId: REQUEST_ID } };
}

function errorBodyV2(code: ErrorCode, detail: string) {
  const status = statusOf(code);
  const title = ERRORS[code].status.slice(`${status} `.length);
  const error = { title, detail, status, type: DOCS_URL + code };
  return { meta: { requestId: REQUEST_ID }, error };
}

/** The 400 of v2 for one fault. */
export function badRequestBodyV2(location: string, message: string, fix: string) {
  const { meta, error } = errorBodyV2('BAD_REQUEST', message);
  return { meta, error: { ...error, errors: [{ location, message, fix }] } };
}

export const badRequestV1 = (message: string) => {
  return { status: 400, response: errorBodyV1('BAD_REQUEST', message) } as const;
};
export const notFoundV1 = (message: string) => {
  return { status: 404, response: errorBodyV1('NOT_FOUND', message) } as const;
};
export const conflictV1 = (message: string) => {
  return { status: 409, response: errorBodyV1('CONFLICT', message) } as const;
};
export const badRequestV2 = (...fault: Parameters<typeof badRequestBodyV2>) => {
  return { status: 400, response: badRequestBodyV2(...fault) } as const;
};
export const notFoundV2 = (message: string) => {
  return { status: 404, response: errorBodyV2('NOT_FOUND', message) } as const;
};
export const ok = (response: unknown) => ({ status: 200, response }) as const;
export const okV2 = (data: unknown) => ok({ meta: { requestId: REQUEST_ID }, data });

export const NO_NAMESPACE_ID = 'rlns_000000000000000000000000';
export const NO_SUCH_ID = `there is no namespace with the id "${NO_NAMESPACE_ID}"`;
export const NAMESPACE_REQUIRED = badRequestV1('"namespaceId" or "namespaceName" is required');
export const IDENTIFIER_REQUIRED = badRequestV1(
  '"identifier" is required: a text of 0 to 512 characters',
);
export const PAGE_TOO_LARGE = (maximum: number) =>
  badRequestV1(`"limit" must be an integer from 1 to ${maximum}; got ${maximum + 1}`);

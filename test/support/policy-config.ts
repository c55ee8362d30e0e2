/** Configuration files with policies, and gateway checks. */

import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { AlgorithmFields } from '../../src/core/algorithm-fields.ts';
import type { Policy } from '../../src/policies/policy.ts';
import {
  exchange,
  LONGEST_WINDOW_MS,
  type ParsedResponse,
  type RequestHeaders,
  requestBytes,
} from './http.ts';

/** A policy's settings in the configuration file. */
export type PolicySettings = Partial<Omit<Policy, 'identify' | 'missing' | 'namespace'>> &
  AlgorithmFields & {
    limit?: number;
    duration?: number;
    identify?: string | string[];
    missing?: string;
  };

/** Policies by namespace. Defaults: the gateway nginx, and the longest window. */
export function configText(policies: Record<string, PolicySettings>): string {
  const filled = Object.entries(policies).map(([namespace, policy]) => {
    const duration = policy.windows === undefined ? { duration: LONGEST_WINDOW_MS } : {};
    return [namespace, { gateway: 'nginx', ...duration, ...policy }];
  });
  return JSON.stringify({ policies: Object.fromEntries(filled) });
}

/** @returns the path of the file */
export function writeConfig(directory: string, policies: Record<string, PolicySettings>): string {
  const path = join(directory, 'weir.json');
  writeFileSync(path, configText(policies));
  return path;
}

/** A request without the headers that `requestBytes` adds. */
export function gatewayRequestBytes(
  path: string,
  headers: RequestHeaders = {},
  method = 'GET',
): Buffer {
  const none = { Authorization: '', 'Content-Type': '', 'Content-Length': '' };
  return requestBytes({ method, path, headers: { ...none, ...headers } });
}

/** Sends one check on its own connection. */
export async function sendGatewayCheck(
  port: number,
  path: string,
  headers: RequestHeaders = {},
  method = 'GET',
): Promise<ParsedResponse> {
  const bytes = gatewayRequestBytes(path, headers, method);
  const [answer] = await exchange(port, [bytes], 1, false, [method]);
  return answer;
}

/** The header in which a gateway reports the client's address. */
export const forwardedFor = (address: string) => ({ 'X-Forwarded-For': address });

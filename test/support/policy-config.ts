/** Configuration files with policies, and checks as gateways ask them. */

import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Policy } from '../../src/policies/policy.ts';
import { exchange, LONGEST_WINDOW_MS, type ParsedResponse, requestBytes } from './http.ts';

/** As the configuration file has it. */
export type PolicySettings = Partial<Omit<Policy, 'identify' | 'missing' | 'namespace'>> & {
  limit?: number;
  duration?: number;
  identify?: string | string[];
  missing?: string;
};

/** By namespace; of a gateway and a window that no test outlasts, unless it says otherwise. */
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

/** A request as bytes, with nothing in its head but what is said. */
export function gatewayRequestBytes(
  path: string,
  headers: Record<string, string> = {},
  method = 'GET',
): Buffer {
  const none = { Authorization: '', 'Content-Type': '', 'Content-Length': '' };
  return requestBytes({ method, path, headers: { ...none, ...headers } });
}

/** One check on a connection of its own. */
export async function sendGatewayCheck(
  port: number,
  path: string,
  headers: Record<string, string> = {},
  method = 'GET',
): Promise<ParsedResponse> {
  const bytes = gatewayRequestBytes(path, headers, method);
  const [answer] = await exchange(port, [bytes], 1, false, [method]);
  return answer;
}

/** Who asks, by the address that its gateway says it has. */
export const forwardedFor = (address: string) => ({ 'X-Forwarded-For': address });

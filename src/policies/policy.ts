/**
 * Policies: by what a gateway's checks in a namespace are counted. They come from the configuration
 * file and from nowhere else, nothing of them from what a client sends. This file says what a
 * policy is and reads one; `identity.ts` finds out who asks, `quota.ts` says what became of it.
 */

import Type, { type Static } from 'typebox';
import {
  AMOUNT_MAX,
  DURATION_MAX_MS,
  DURATION_MIN_MS,
  IDENTITY_PARTS_MAX,
  NAMESPACE_ID_PREFIX,
  NAMESPACE_MAX_CHARACTERS,
  POLICIES_MAX,
  POLICY_WINDOWS_MAX,
  TRUSTED_HOPS_MAX,
} from '../core/constants.ts';
import { formatValue } from '../core/describe.ts';
import { ApiError } from '../core/errors.ts';
import { nearestName } from '../core/nearest.ts';
import { createValidator, flag, integer, milliseconds } from '../core/schema.ts';
import { readPart } from './identity.ts';

/** Who asks. Istio has Envoys ask; the last two are applications that ask for themselves. */
export const GATEWAYS = [
  'nginx',
  'caddy',
  'haproxy',
  'traefik',
  'envoy',
  'istio',
  'apisix',
  'express',
  'fastify',
] as const;
export type Gateway = (typeof GATEWAYS)[number];

const oneOf = <T extends string>(choices: readonly T[]) => {
  return Type.Enum([...choices], {
    takes: choices.length === 2 ? choices.join(' or ') : `one of ${choices.join(', ')}`,
  });
};
const tokens = () => integer(1, AMOUNT_MAX);
const duration = () => milliseconds(DURATION_MIN_MS, DURATION_MAX_MS);

const WINDOW_DESCRIPTION = 'an object with limit and duration';
const WindowSchema = Type.Object(
  { limit: tokens(), duration: duration() },
  { takes: WINDOW_DESCRIPTION },
);

/** What a policy may say. Windows and parts of an identity are looked at one by one. */
const PolicySchema = Type.Object(
  {
    gateway: oneOf(GATEWAYS),
    limit: Type.Optional(tokens()),
    duration: Type.Optional(duration()),
    windows: Type.Optional(
      Type.Array(Type.Unknown(), {
        minItems: 1,
        maxItems: POLICY_WINDOWS_MAX,
        takes: `an array of 1 to ${POLICY_WINDOWS_MAX} of them, each ${WINDOW_DESCRIPTION}`,
      }),
    ),
    cost: Type.Optional(tokens()),
    identify: Type.Optional(Type.Unknown()),
    trustedHops: Type.Optional(integer(1, TRUSTED_HOPS_MAX)),
    ipv6Prefix: Type.Optional(integer(1, 128)),
    missing: Type.Optional(
      Type.Enum(['share', 'allow', 'deny', 'admit', 'refuse'], { takes: 'share, allow or deny' }),
    ),
    onError: Type.Optional(oneOf(['allow', 'deny'])),
    shadow: Type.Optional(flag()),
    legacyHeaders: Type.Optional(flag()),
  },
  { takes: 'an object' },
);

const windowReader = createValidator(WindowSchema, 'a window');
const policyReader = createValidator(PolicySchema, 'a policy');
const WINDOW_FIELDS = Object.keys(WindowSchema.properties);
const POLICY_FIELDS = Object.keys(PolicySchema.properties);

/** The words of `missing`, and those that older files have for two of them. */
const MISSING_ACTIONS = {
  share: 'share',
  allow: 'allow',
  deny: 'deny',
  admit: 'allow',
  refuse: 'deny',
} as const;

/** So many tokens in so many ms. */
export type PolicyWindow = Static<typeof WindowSchema>;

/** A policy with all that it may leave out. */
export interface Policy {
  namespace: string;
  gateway: Gateway;
  /** One, or several of different durations, of which all have to admit. */
  windows: PolicyWindow[];
  cost: number;
  /** `ip`, `method`, `path`, `header:<name>`, `cookie:<name>`: what together says who asks. */
  identify: string[];
  /** Proxies whose `X-Forwarded-For` is believed: the caller is the address that the last added. */
  trustedHops: number;
  /** Bits of an IPv6 address that tell callers apart. */
  ipv6Prefix: number;
  /** What becomes of who has no identity: one counter for all of them, or none. */
  missing: 'share' | 'allow' | 'deny';
  /** What is answered where weir fails, and, by the gateway, where it is not there. */
  onError: 'allow' | 'deny';
  /** Decide, count and report, but refuse nobody: `onError` is allow then, whatever is given. */
  shadow: boolean;
  /** Whether answers have the headers X-RateLimit-* too. */
  legacyHeaders: boolean;
}

/** It stands in paths, in headers and in the configurations of gateways: never to be escaped. */
const NAMESPACE_FORMAT = /^[A-Za-z0-9_~][A-Za-z0-9._~:@-]*$/;

/** @param path names and indices that lead to the field at fault, from "policies" on */
export type PolicyFaultHandler = (path: string[], message: string) => void;

/**
 * @param input what stands behind "policies" in the configuration file
 * @param onFault is told of the first fault of each policy; where it returns, the others are read
 * @returns the policies that are in order
 * @throws ApiError whose message names the field that is at fault, unless `onFault` is given
 */
export function readPolicies(
  input: unknown,
  onFault: PolicyFaultHandler = throwPolicyFault,
): Policy[] {
  if (typeof input !== 'object' || input === null || Array.isArray(input)) {
    onFault([], `"policies" must be an object of policies by namespace; got ${formatValue(input)}`);
    return [];
  }
  const entries = Object.entries(input);
  if (entries.length > POLICIES_MAX) {
    onFault([], `"policies" must hold at most ${POLICIES_MAX}; got ${entries.length}`);
  }
  return entries.flatMap(([namespace, policy]) => {
    try {
      return [readPolicy(namespace, policy)];
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      const [, ...field] = error.faultLocation?.location.match(/[^.[\]]+/g) ?? [];
      onFault([namespace, ...field], `policy ${formatValue(namespace)}: ${error.message}`);
      return [];
    }
  });
}

function readPolicy(namespace: string, input: unknown): Policy {
  const fits = NAMESPACE_FORMAT.test(namespace) && namespace.length <= NAMESPACE_MAX_CHARACTERS;
  if (!fits || namespace.startsWith(NAMESPACE_ID_PREFIX)) {
    throw policyError(
      `its namespace must be 1 to ${NAMESPACE_MAX_CHARACTERS} of the characters` +
        ` A-Z a-z 0-9 . _ ~ : @ -, begin with none of . : @ - and not with` +
        ` "${NAMESPACE_ID_PREFIX}"; got ${formatValue(namespace)}`,
    );
  }
  requireKnownFields(input, POLICY_FIELDS, 'a policy');
  const policy = policyReader.validate(input);
  const { limit, duration, windows, identify, ...rest } = policy;
  const read: Policy = {
    ...POLICY_DEFAULTS,
    ...rest,
    namespace,
    windows: readWindows(limit, duration, windows),
    identify: readIdentityParts(identify),
    missing: MISSING_ACTIONS[policy.missing ?? POLICY_DEFAULTS.missing],
  };
  // What is only tried refuses nobody, also where weir fails, or is not there.
  if (read.shadow) read.onError = 'allow';
  const least = Math.min(...read.windows.map((window) => window.limit));
  if (read.cost > least) {
    const most = `"cost" must be at most the smallest limit, which is ${least}`;
    throw policyError(`${most}; got ${read.cost}`, 'cost');
  }
  return read;
}

/** What a policy is where it says nothing of it. */
export const POLICY_DEFAULTS = {
  cost: 1,
  trustedHops: 1,
  ipv6Prefix: 64,
  missing: 'share',
  onError: 'allow',
  shadow: false,
  legacyHeaders: false,
} as const;

function throwPolicyFault(_path: string[], message: string): never {
  throw policyError(message);
}

/** A misspelt field would be none, and a policy not what its author means. */
function requireKnownFields(input: unknown, fields: readonly string[], whole: string): void {
  if (typeof input !== 'object' || input === null || Array.isArray(input)) return;
  const stranger = Object.keys(input).find((field) => !fields.includes(field));
  if (stranger === undefined) return;
  const near = nearestName(stranger, fields);
  const hint = near === undefined ? `, which are ${fields.join(', ')}` : `; is it "${near}"?`;
  throw policyError(`${formatValue(stranger)} is no field of ${whole}${hint}`, stranger);
}

/** A limit and a duration, or windows. */
function readWindows(
  limit: number | undefined,
  duration: number | undefined,
  windows: unknown[] | undefined,
): PolicyWindow[] {
  if (windows === undefined) {
    if (limit !== undefined && duration !== undefined) return [{ limit, duration }];
    const missing = limit === undefined ? 'limit' : 'duration';
    throw policyError(
      `"${missing}" is required: a policy has "limit" and "duration", or "windows"`,
    );
  }
  if (limit !== undefined || duration !== undefined) {
    throw policyError(
      '"windows" must be left out where there are "limit" or "duration"',
      'windows',
    );
  }
  const read = windows.map((window, index) => {
    try {
      requireKnownFields(window, WINDOW_FIELDS, 'a window');
      return windowReader.validate(window);
    } catch (error) {
      throw error instanceof ApiError ? error.forListItem('windows', index) : error;
    }
  });
  // They would be one counter.
  if (new Set(read.map((window) => window.duration)).size < read.length) {
    throw policyError('"windows" must differ in their duration', 'windows');
  }
  return read;
}

function readIdentityParts(input: unknown = 'ip'): string[] {
  const parts: unknown[] = Array.isArray(input) ? input : [input];
  const takes =
    'ip, method, path, header:<name> or cookie:<name>, where the header is none that gateways' +
    ' set themselves';
  if (parts.length === 0 || parts.length > IDENTITY_PARTS_MAX) {
    const most = `1 to ${IDENTITY_PARTS_MAX} of ${takes}`;
    throw policyError(`"identify" must be ${most}; got ${formatValue(input)}`, 'identify');
  }
  const read = parts.map((part) => {
    if (typeof part === 'string' && readPart(part) !== undefined) return part;
    const all = `${takes}, or an array of these`;
    throw policyError(`"identify" must be ${all}; got ${formatValue(part)}`, 'identify');
  });
  const different = new Set(read.map((part) => JSON.stringify(readPart(part))));
  if (different.size < read.length)
    throw policyError('"identify" must name no part twice', 'identify');
  return read;
}

/** @param field that is at fault, if it is one */
function policyError(message: string, field?: string): ApiError {
  const place = field === undefined ? undefined : { location: `body.${field}` };
  return new ApiError('BAD_REQUEST', message, place);
}

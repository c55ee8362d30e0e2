/**
 * Policies: the limits and the identifiers of gateway checks in a namespace. They come only from
 * the configuration file. This file declares a policy and reads it. `identifier.ts` identifies the
 * client of a request, `quota.ts` formats the result.
 */

import Type, { type Static, type TSchema } from 'typebox';
import { algorithmFields, requireValidBurst } from '../core/algorithm-fields.ts';
import {
  AMOUNT_MAX,
  DURATION_MAX_MS,
  DURATION_MIN_MS,
  IDENTITY_PARTS_MAX,
  NAMESPACE_ID_PREFIX,
  NAMESPACE_MAX_CHARACTERS,
  POLICIES_MAX,
  POLICY_SKIPS_MAX,
  POLICY_WINDOWS_MAX,
  SKIP_PATH_MAX_CHARACTERS,
  TRUSTED_HOPS_MAX,
} from '../core/constants.ts';
import { formatValue } from '../core/describe.ts';
import { readDuration } from '../core/duration.ts';
import { ApiError } from '../core/errors.ts';
import { nearestName } from '../core/nearest.ts';
import { createValidator, field, flag, integer, milliseconds } from '../core/schema.ts';
import { DEFAULT_RULE } from '../core/window-rules.ts';
import { FAIL_CLOSED_GATEWAYS, GATEWAYS, type Gateway, isEnvoyBased } from './gateways.ts';
import { readPart } from './identity-part.ts';
import { PLAIN_PATH, PLAIN_PATH_RULE } from './path.ts';

/** The values of fields that a policy leaves out. */
export const POLICY_DEFAULTS = {
  cost: 1,
  trustedHops: 1,
  ipv6Prefix: 64,
  missing: 'share',
  onError: 'allow',
  shadow: false,
  legacyHeaders: false,
} as const;
const IDENTIFY_DEFAULT = 'ip';

/** @param name of a field that has a default */
const byDefault = <S extends TSchema>(
  name: keyof typeof POLICY_DEFAULTS,
  schema: S,
  description: string,
) => Type.Optional(field(schema, description, POLICY_DEFAULTS[name]));
const tokens = () => integer(1, AMOUNT_MAX);
const limit = () => field(tokens(), 'Tokens that may be used in one window.');
/** A text is valid too: `withMilliseconds` converts it before the validation. */
const duration = () => {
  const schema = Object.assign(milliseconds(DURATION_MIN_MS, DURATION_MAX_MS), {
    accepts:
      `an integer number of milliseconds from ${DURATION_MIN_MS} to ${DURATION_MAX_MS}, or a ` +
      'duration such as "60s"',
  });
  return field(schema, 'Length of the window, in milliseconds or with a unit: ms, s, m, h or d.');
};

const WINDOW_DESCRIPTION = 'an object with limit and duration';
export const WindowSchema = Type.Object(
  { limit: limit(), duration: duration(), ...algorithmFields(DEFAULT_RULE) },
  { accepts: WINDOW_DESCRIPTION },
);

/** The fields of a policy. Gateways, windows and parts of an identity are validated one by one. */
export const PolicySchema = Type.Object(
  {
    gateway: Type.Optional(
      field(
        Type.Unknown(),
        'The gateway that sends the checks, or an array of several. It can have `envoy` or ' +
          '`istio`, but not both.',
      ),
    ),
    limit: Type.Optional(limit()),
    duration: Type.Optional(duration()),
    ...algorithmFields(DEFAULT_RULE),
    windows: Type.Optional(
      field(
        Type.Array(Type.Unknown(), {
          minItems: 1,
          maxItems: POLICY_WINDOWS_MAX,
          accepts: `an array of 1 to ${POLICY_WINDOWS_MAX} windows, each ${WINDOW_DESCRIPTION}`,
        }),
        'Windows of different durations, instead of `limit` and `duration`. All of them must ' +
          'allow a request.',
      ),
    ),
    cost: byDefault(
      'cost',
      tokens(),
      'Tokens that a request uses, at most the smallest `limit` or `burst`.',
    ),
    identify: Type.Optional(
      field(
        Type.Unknown(),
        'What identifies the client: `ip`, `ip:header:<name>`, `method`, `path`, ' +
          '`header:<name>` or `cookie:<name>`, or an array of these. Use only headers and ' +
          'cookies that the application authenticates, and with `ip:header` only a header that ' +
          'a proxy overwrites.',
        IDENTIFY_DEFAULT,
      ),
    ),
    trustedHops: byDefault(
      'trustedHops',
      integer(1, TRUSTED_HOPS_MAX),
      'Number of proxies that you run, including the gateway. The first of them adds the address ' +
        'of the client to `X-Forwarded-For`.',
    ),
    ipv6Prefix: byDefault(
      'ipv6Prefix',
      integer(1, 128),
      'Bits of an IPv6 address that identify a client.',
    ),
    skip: Type.Optional(
      field(
        Type.Unknown(),
        'Requests that are allowed without a check, as an array: `preflight` for those of CORS, ' +
          'and whole paths, such as `/healthz`.',
      ),
    ),
    missing: byDefault(
      'missing',
      Type.Enum(['share', 'allow', 'deny', 'admit', 'refuse'], { accepts: 'share, allow or deny' }),
      'Decision for a request without a part of its identifier. `share` counts all such requests ' +
        'in one counter. `allow` and `deny` count nothing.',
    ),
    onError: byDefault(
      'onError',
      Type.Enum(['allow', 'deny'], { accepts: 'allow or deny' }),
      'Decision if weir fails, or if the gateway cannot reach it. With `traefik` it can only be ' +
        '`deny`, which is then the default: Traefik denies all requests while weir is stopped.',
    ),
    shadow: byDefault(
      'shadow',
      flag(),
      'Whether the policy decides and counts, but denies no request. If true, `onError` is ' +
        '`allow`.',
    ),
    legacyHeaders: byDefault(
      'legacyHeaders',
      flag(),
      'Whether responses also have the headers `X-RateLimit-*`.',
    ),
  },
  { accepts: 'an object' },
);

const windowReader = createValidator(WindowSchema, 'a window');
const policyReader = createValidator(PolicySchema, 'a policy');
const WINDOW_FIELDS = Object.keys(WindowSchema.properties);
const POLICY_FIELDS = Object.keys(PolicySchema.properties);

/** The values of `missing`; older files use admit and refuse for allow and deny. */
const MISSING_ACTIONS = {
  share: 'share',
  allow: 'allow',
  deny: 'deny',
  admit: 'allow',
  refuse: 'deny',
} as const;

/** Tokens per duration in ms, by the default rule unless it names another algorithm. */
type PolicyWindow = Static<typeof WindowSchema>;

/** A policy with its defaults. */
export interface Policy {
  namespace: string;
  /** One name, or an array of several: the form that the audit log and the API have had for one. */
  gateway: Gateway | Gateway[];
  /** One, or several of different durations, which must all allow a check. */
  windows: PolicyWindow[];
  cost: number;
  /** The parts of an identifier: `ip`, `path`, `header:<name>` and others. */
  identify: string[];
  /** Number of trusted proxies: the client address is the one that the outermost of them added. */
  trustedHops: number;
  /** Bits of an IPv6 address that identify a client. */
  ipv6Prefix: number;
  /** `preflight`, and plain paths; absent for none, as in the audit log of older versions. */
  skip?: string[];
  /**
   * For requests without an identifier: share one counter, or allow or deny without counting. Those
   * with an invalid one share a counter too, unless it is `deny`.
   */
  missing: 'share' | 'allow' | 'deny';
  /** The decision if weir fails, or if the gateway cannot reach it. */
  onError: 'allow' | 'deny';
  /** Decide, count and report, but deny no request. Then `onError` is always allow. */
  shadow: boolean;
  /** Whether responses also have the headers X-RateLimit-*. */
  legacyHeaders: boolean;
}

/** The gateways that a policy serves. */
export function gatewaysOf({ gateway }: Policy): readonly Gateway[] {
  return Array.isArray(gateway) ? gateway : [gateway];
}

/** The name is used in paths, headers and gateway configurations, where it needs no escape. */
export const POLICY_NAMESPACE_FORMAT = /^[A-Za-z0-9_~][A-Za-z0-9._~:@-]*$/;

export const POLICY_NAMESPACE_RULE =
  `1 to ${NAMESPACE_MAX_CHARACTERS} of the characters A-Z a-z 0-9 . _ ~ : @ -, and must not ` +
  `begin with . : @ - or "${NAMESPACE_ID_PREFIX}"`;

/** @param path the names and indices from "policies" to the invalid field */
type PolicyFaultHandler = (path: string[], message: string) => void;

/**
 * @param input the value of "policies" in the configuration file
 * @param onFault called with the first fault of each policy; if it returns, the others are read
 * @returns the valid policies
 * @throws ApiError that names the invalid field, unless `onFault` is given
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
  const isName =
    POLICY_NAMESPACE_FORMAT.test(namespace) && namespace.length <= NAMESPACE_MAX_CHARACTERS;
  if (!isName || namespace.startsWith(NAMESPACE_ID_PREFIX)) {
    const rule = `its namespace must be ${POLICY_NAMESPACE_RULE}`;
    throw policyError(`${rule}; got ${formatValue(namespace)}`);
  }
  requireKnownFields(input, POLICY_FIELDS, 'a policy');
  const policy = policyReader.validate(withMilliseconds(input));
  const { gateway, limit, duration, algorithm, burst, windows, identify, skip, ...rest } = policy;
  const read: Policy = {
    ...POLICY_DEFAULTS,
    ...rest,
    namespace,
    gateway: readGateways(gateway),
    windows: readWindows(policy),
    identify: readIdentityParts(identify),
    missing: MISSING_ACTIONS[policy.missing ?? POLICY_DEFAULTS.missing],
  };
  const skipped = readSkip(skip);
  if (skipped.length > 0) read.skip = skipped;
  const failClosed = gatewaysOf(read).find((name) => FAIL_CLOSED_GATEWAYS.includes(name));
  if (failClosed !== undefined) {
    if (policy.onError === 'allow') {
      const rule = `"onError" must be deny or left out with the gateway ${failClosed}`;
      throw policyError(
        `${rule}, which denies all requests while weir is stopped; got "allow"`,
        'onError',
      );
    }
    read.onError = 'deny';
  }
  // A shadow policy denies no request, also if weir fails or is not reachable.
  if (read.shadow) read.onError = 'allow';
  const least = Math.min(...read.windows.map(({ limit, burst = limit }) => burst));
  if (read.cost > least) {
    const rule = `"cost" must be at most the smallest limit or burst, which is ${least}`;
    throw policyError(`${rule}; got ${read.cost}`, 'cost');
  }
  return read;
}

/** Converts a duration with a unit. Other values stay unchanged, and are validated later. */
function withMilliseconds(input: unknown): unknown {
  if (typeof input !== 'object' || input === null || !('duration' in input)) return input;
  if (typeof input.duration !== 'string') return input;
  const bounds = {
    minimumMs: DURATION_MIN_MS,
    maximumMs: DURATION_MAX_MS,
    needsUnit: true,
  } as const;
  const duration = readDuration(input.duration, bounds);
  if (typeof duration === 'number') return { ...input, duration };
  throw policyError(`"duration" ${duration}`, 'duration');
}

function throwPolicyFault(_path: string[], message: string): never {
  throw policyError(message);
}

/** Rejects unknown fields: a misspelled field would otherwise be ignored. */
function requireKnownFields(input: unknown, fields: readonly string[], whole: string): void {
  if (typeof input !== 'object' || input === null || Array.isArray(input)) return;
  const unknown = Object.keys(input).find((field) => !fields.includes(field));
  if (unknown === undefined) return;
  const near = nearestName(unknown, fields);
  const hint = near === undefined ? `its fields are ${fields.join(', ')}` : `is it "${near}"?`;
  throw policyError(`${formatValue(unknown)} is not a field of ${whole}; ${hint}`, unknown);
}

/**
 * An array gets the order of GATEWAYS, and one of a single name becomes that name: the audit log
 * records a change only if the gateways have changed.
 */
function readGateways(input: unknown): Policy['gateway'] {
  const accepts = `one of ${GATEWAYS.join(', ')}, or an array of different ones`;
  if (input === undefined) throw policyError(`"gateway" is required: ${accepts}`);
  const names: unknown[] = Array.isArray(input) ? input : [input];
  const known: readonly unknown[] = GATEWAYS;
  const wrong = names.length === 0 ? input : names.find((name) => !known.includes(name));
  if (wrong !== undefined) {
    throw policyError(`"gateway" must be ${accepts}; got ${formatValue(wrong)}`, 'gateway');
  }
  const repeated = names.find((name, i) => names.indexOf(name) < i);
  if (repeated !== undefined) {
    const rule = `"gateway" must name each gateway once`;
    throw policyError(`${rule}; got ${formatValue(repeated)} more than once`, 'gateway');
  }
  const gateways = GATEWAYS.filter((name) => names.includes(name));
  const envoyBased = gateways.filter(isEnvoyBased);
  if (envoyBased.length > 1) {
    throw policyError(
      `"gateway" must not name both ${envoyBased.join(' and ')}: a check from one has the same` +
        ' address as a check from the other; give each its own policy',
      'gateway',
    );
  }
  return gateways.length === 1 ? gateways[0] : gateways;
}

/** The windows of a policy: those in `windows`, or one from its own fields. */
function readWindows(policy: Static<typeof PolicySchema>): PolicyWindow[] {
  const { limit, duration, algorithm, burst, windows } = policy;
  if (windows === undefined) {
    if (limit === undefined || duration === undefined) {
      const missing = limit === undefined ? 'limit' : 'duration';
      throw policyError(
        `"${missing}" is required: a policy has "limit" and "duration", or "windows"`,
      );
    }
    // The audit log compares policies: a field that is not given must not be there as undefined.
    const window: PolicyWindow = { limit, duration };
    if (algorithm !== undefined) window.algorithm = algorithm;
    if (burst !== undefined) window.burst = burst;
    requireValidBurst(window);
    return [window];
  }
  if (limit !== undefined || duration !== undefined) {
    throw policyError('"windows" cannot be combined with "limit" or "duration"', 'windows');
  }
  const field = algorithm === undefined ? 'burst' : 'algorithm';
  if (policy[field] !== undefined) {
    throw policyError(
      `"${field}" must be left out where there are "windows": each window may have its own`,
      field,
    );
  }
  const read = windows.map((window, index) => {
    try {
      requireKnownFields(window, WINDOW_FIELDS, 'a window');
      const valid = windowReader.validate(withMilliseconds(window));
      requireValidBurst(valid);
      return valid;
    } catch (error) {
      throw error instanceof ApiError ? error.forListItem('windows', index) : error;
    }
  });
  // Windows of the same duration would share a name in headers, fixed and sliding ones a counter.
  if (new Set(read.map((window) => window.duration)).size < read.length) {
    throw policyError('"windows" must differ in their duration', 'windows');
  }
  return read;
}

/** The parts of an identity, as error messages list them. */
export const IDENTITY_PARTS =
  'ip, ip:header:<name>, method, path, header:<name> or cookie:<name>, and no header that ' +
  'gateways set themselves';

function readIdentityParts(input: unknown = IDENTIFY_DEFAULT): string[] {
  const parts: unknown[] = Array.isArray(input) ? input : [input];
  if (parts.length === 0 || parts.length > IDENTITY_PARTS_MAX) {
    const rule = `1 to ${IDENTITY_PARTS_MAX} of ${IDENTITY_PARTS}`;
    throw policyError(`"identify" must be ${rule}; got ${formatValue(input)}`, 'identify');
  }
  const read = parts.map((part) => {
    if (typeof part === 'string' && readPart(part) !== undefined) return part;
    const rule = `${IDENTITY_PARTS}, or an array of these`;
    const received = `${formatValue(part)}${suggestPart(part)}`;
    throw policyError(`"identify" must be ${rule}; got ${received}`, 'identify');
  });
  const different = new Set(read.map((part) => JSON.stringify(readPart(part))));
  if (different.size < read.length)
    throw policyError('"identify" must not repeat a part', 'identify');
  return read;
}

/** In `skip`: the request with which a browser asks whether a page may send another one (CORS). */
export const PREFLIGHT = 'preflight';

/** What a policy may skip, as error messages list it. */
export const SKIP_RULE =
  `"preflight" or a path that begins with "/" and has at most ${SKIP_PATH_MAX_CHARACTERS} ` +
  `characters; it must ${PLAIN_PATH_RULE}`;

function readSkip(input: unknown = []): string[] {
  if (!Array.isArray(input) || input.length > POLICY_SKIPS_MAX) {
    const rule = `an array of at most ${POLICY_SKIPS_MAX} requests, each ${SKIP_RULE}`;
    throw policyError(`"skip" must be ${rule}; got ${formatValue(input)}`, 'skip');
  }
  const entries: unknown[] = input;
  const read = entries.map((entry) => {
    if (typeof entry === 'string' && isSkip(entry)) return entry;
    throw policyError(`each of "skip" must be ${SKIP_RULE}; got ${formatValue(entry)}`, 'skip');
  });
  if (new Set(read).size < read.length) {
    throw policyError('"skip" must not repeat a request', 'skip');
  }
  return read;
}

function isSkip(entry: string): boolean {
  if (entry === PREFLIGHT) return true;
  return entry !== '' && entry.length <= SKIP_PATH_MAX_CHARACTERS && PLAIN_PATH.test(entry);
}

/** A hint for a name without `header:`, or an empty string. */
function suggestPart(part: unknown): string {
  if (typeof part !== 'string') return '';
  const lowerCase = part.toLowerCase();
  const near = lowerCase === 'ip' ? 'ip' : nearestName(lowerCase, ['method', 'path']);
  const suggestion = near ?? `header:${part}`;
  return readPart(suggestion) === undefined ? '' : `; is it "${suggestion}"?`;
}

/** @param field the invalid field, if the error concerns one */
function policyError(message: string, field?: string): ApiError {
  const place = field === undefined ? undefined : { location: `body.${field}` };
  return new ApiError('BAD_REQUEST', message, place);
}

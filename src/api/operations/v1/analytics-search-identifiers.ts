/**
 * GET /v1/analytics.searchIdentifiers: the known identifiers that begin with a text. Counters have
 * only hashes of identifiers, so the texts come from analytics, recent decisions and overrides. The
 * search works in many turns of the event loop. Failures are ApiErrors, in the order 400, 403, 404,
 * 503.
 */

import Type from 'typebox';
import type { CountWithError } from '../../../analytics/analytics.ts';
import { GRANULARITY_MS } from '../../../analytics/granularity.ts';
import type { IdentifierLists } from '../../../analytics/identifier-record.ts';
import { TEXT_BYTES } from '../../../analytics/sketch.ts';
import {
  ANALYTICS_SEARCHED_HOURS,
  ANALYTICS_SEARCHED_TEXTS_MAX,
  IDENTIFIER_MAX_CHARACTERS,
  PAGE_MAX,
  RECENT_DECISIONS,
} from '../../../core/constants.ts';
import { field, integer, text } from '../../../core/schema.ts';
import {
  hasEnded,
  kindOf,
  type Override,
  type OverrideSelector,
  type StoredNamespace,
} from '../../../registry/registry.ts';
import { count, queriedNamespaces, rangeOf, shownRange } from '../../common/analytics.ts';
import { namespaceFields } from '../../common/namespace-query.ts';
import { RESPONSE_BYTES, type Result, readOperation } from '../../common/operation.ts';
import type { OperationContext } from '../../common/operation-context.ts';
import { decisionNamespace } from '../../common/recent-decisions.ts';
import { flagged, listOf, named, unixMs } from '../../common/responses.ts';

const IDENTIFIERS_DEFAULT = 20;

/** What a look at a record or at a namespace costs, in texts that are compared. */
const TEXTS_OF_LOOK = 16;

/** Overrides that are compared before a pause may come. */
const PART = 256;

const SOURCES = ['analytics', 'decisions', 'override', 'block'] as const;
type Source = (typeof SOURCES)[number];

export function response() {
  const counted = (what: string) => {
    const fields = {
      count: count(`Number of ${what}, at most.`),
      error: count('The true number is between `count` minus `error` and `count`.'),
    };
    return Type.Optional(
      Type.Object(fields, { description: `The ${what}. Absent where analytics do not have it.` }),
    );
  };
  const identifier = Type.Object({
    identifier: named('The identifier.'),
    cutOff: Type.Optional(
      flagged(`\`true\` if only the first ${TEXT_BYTES} bytes of the identifier are known.`),
    ),
    namespace: decisionNamespace(),
    denied: counted('denied checks and leases'),
    spent: counted('tokens of allowed checks'),
    lastDeniedAt: Type.Optional(unixMs('The last denial among the recent decisions')),
    sources: Type.Array(Type.Enum([...SOURCES]), {
      description:
        'What has the text: the analytics, a recent decision, an override for it alone, or a ' +
        'block.',
    }),
  });
  return Type.Object({
    ...shownRange('an hour'),
    identifiers: listOf(
      identifier,
      'The one that was denied most often first, then the one that used most tokens.',
    ),
    truncated: flagged(
      '`true` if more identifiers are known than `limit`, or if not all texts were read, to ' +
        'bound the work of the request: send a longer prefix, or a namespace.',
    ),
  });
}

export const searchIdentifiers = readOperation({
  name: 'analytics.searchIdentifiers',
  version: 'v1',
  requires: { action: 'read_analytics', in: 'each listed namespace' },
  responseBytesEstimate: RESPONSE_BYTES.figures,
  request: {
    prefix: field(
      text(1, IDENTIFIER_MAX_CHARACTERS),
      'The beginning of the identifiers. `*` is an ordinary character, and case matters.',
    ),
    ...namespaceFields('Without both, the namespaces that the key may read are searched.'),
    limit: Type.Optional(
      field(integer(1, PAGE_MAX), 'Maximum number of identifiers.', IDENTIFIERS_DEFAULT),
    ),
  },
  handle: (context, query) => {
    const { prefix, limit = IDENTIFIERS_DEFAULT } = query;
    const namespaces = queriedNamespaces(context, query);
    return context.turns.runSearch(() => search(context, namespaces, prefix, limit));
  },
});

async function search(
  context: OperationContext,
  namespaces: ReadonlyMap<string, StoredNamespace>,
  prefix: string,
  limit: number,
): Promise<Result<typeof response>> {
  const { start, end, from, to } = rangeOf(
    context,
    {},
    GRANULARITY_MS.hour,
    ANALYTICS_SEARCHED_HOURS,
  );
  const { analytics, registry, turns } = context;
  const recent = await recentOf(context, namespaces, prefix);
  let texts = 0;
  let best: FoundIdentifier[] = [];
  for (const [key, namespace] of namespaces) {
    const isRead = texts < ANALYTICS_SEARCHED_TEXTS_MAX;
    const workOf = (read?: { texts: number }) => TEXTS_OF_LOOK + (read?.texts ?? 0);
    const counted = await turns.run(
      () => (isRead ? analytics?.search(prefix, key, from, to) : undefined),
      workOf,
    );
    texts += workOf(counted);
    // It may have been deleted in an earlier turn.
    if (registry.namespaceById(namespace.id) === undefined) continue;
    const found = foundIn(namespace, counted, recent.get(key));
    if (found.length > 0) best = [...best, ...found].toSorted(compare).slice(0, limit + 1);
  }
  await addOverridden(context, namespaces.values(), prefix, best, limit + 1);
  return {
    ...{ start, end },
    identifiers: best.slice(0, limit).map((found) => shown(context, found)),
    truncated: best.length > limit || texts >= ANALYTICS_SEARCHED_TEXTS_MAX,
  };
}

interface FoundIdentifier {
  namespace: StoredNamespace;
  identifier: string;
  isCutOff: boolean;
  denied?: CountWithError;
  spent?: CountWithError;
  isRecent: boolean;
  lastDeniedMs?: number;
}

/** When an identifier was last denied: undefined if it was only allowed. */
type RecentIdentifiers = ReadonlyMap<string, number | undefined>;

/** Of the recent decisions, by the key of the namespace. */
async function recentOf(
  { recentDecisions, turns }: OperationContext,
  namespaces: ReadonlyMap<string, StoredNamespace>,
  prefix: string,
): Promise<Map<string, RecentIdentifiers>> {
  const recent = new Map<string, Map<string, number | undefined>>();
  const isNamespace = (key: string) => namespaces.has(key);
  const threads = recentDecisions?.findByThread({ identifierPrefix: prefix, isNamespace }) ?? [];
  for (const found of threads) {
    const records = await turns.run(
      () => [...found],
      () => RECENT_DECISIONS,
    );
    for (const record of records) {
      await turns.spend(TEXTS_OF_LOOK);
      const decision = recentDecisions?.read(record);
      if (decision?.identifier === undefined) continue;
      const { namespaceKey, identifier, isAllowed, untilMs } = decision;
      const ofNamespace = recent.get(namespaceKey) ?? new Map<string, number | undefined>();
      const before = ofNamespace.get(identifier);
      ofNamespace.set(identifier, isAllowed ? before : Math.max(before ?? 0, untilMs));
      recent.set(namespaceKey, ofNamespace);
    }
  }
  return recent;
}

/** The identifiers of one namespace. */
function foundIn(
  namespace: StoredNamespace,
  counted: Pick<IdentifierLists, 'denied' | 'spent'> | undefined,
  recent: RecentIdentifiers | undefined,
): FoundIdentifier[] {
  const found = new Map<string, FoundIdentifier>();
  const at = (identifier: string, cutOffKey?: string) => {
    const isCutOff = cutOffKey !== undefined;
    const key = `${isCutOff} ${cutOffKey ?? identifier}`;
    const one = found.get(key) ?? { namespace, identifier, isCutOff, isRecent: false };
    found.set(key, one);
    return one;
  };
  for (const name of ['denied', 'spent'] as const) {
    for (const { key, text, isCutOff, count, error } of counted?.[name].items ?? []) {
      at(text, isCutOff ? key : undefined)[name] = { count, error };
    }
  }
  for (const [identifier, lastDeniedMs] of recent ?? []) {
    Object.assign(at(identifier), { isRecent: true, lastDeniedMs });
  }
  return [...found.values()];
}

/**
 * Adds the identifiers with an override for them alone that nothing else has found.
 * @param found to which they are added, all that were found if these are fewer than `max`
 */
async function addOverridden(
  { registry, permissions, turns, nowMs }: OperationContext,
  namespaces: Iterable<StoredNamespace>,
  prefix: string,
  found: FoundIdentifier[],
  max: number,
): Promise<void> {
  const known = new Set(found.map(({ namespace, identifier }) => `${namespace.id} ${identifier}`));
  for (const namespace of namespaces) {
    if (!permissions.may('read_override', namespace.id)) continue;
    let compared = 0;
    for (const override of registry.overridesOf(namespace.id)) {
      if (found.length === max) return;
      const { identifier } = override;
      const isFound = identifier.startsWith(prefix) && isForOne(override, nowMs());
      if (isFound && !known.has(`${namespace.id} ${identifier}`)) {
        known.add(`${namespace.id} ${identifier}`);
        found.push({ namespace, identifier, isCutOff: false, isRecent: false });
      }
      if (++compared % PART === 0) await turns.spend(PART);
    }
    await turns.spend(1 + (compared % PART));
  }
}

function isForOne(override: Override, nowMs: number): boolean {
  return kindOf(override) !== 'wildcard' && !hasEnded(override, nowMs);
}

function shown({ registry, permissions, nowMs }: OperationContext, found: FoundIdentifier) {
  const { namespace, identifier, isCutOff, denied, spent, isRecent, lastDeniedMs } = found;
  const { id, name } = namespace;
  const isReadable = !isCutOff && permissions.may('read_override', id);
  const isSet = (selector: OverrideSelector) => {
    const override = isReadable ? registry.override(id, selector) : undefined;
    return override !== undefined && isForOne(override, nowMs());
  };
  const has: Record<Source, boolean> = {
    analytics: denied !== undefined || spent !== undefined,
    decisions: isRecent,
    override: isSet({ identifier }),
    block: isSet({ identifier, isBlocking: true }),
  };
  return {
    identifier,
    ...(isCutOff && { cutOff: true }),
    namespace: { id, name },
    ...(denied && { denied }),
    ...(spent && { spent }),
    ...(lastDeniedMs !== undefined && { lastDeniedAt: lastDeniedMs }),
    sources: SOURCES.filter((source) => has[source]),
  };
}

function compare(a: FoundIdentifier, b: FoundIdentifier): number {
  return (
    provenOf(b.denied) - provenOf(a.denied) ||
    provenOf(b.spent) - provenOf(a.spent) ||
    (b.lastDeniedMs ?? 0) - (a.lastDeniedMs ?? 0)
  );
}

function provenOf(counted: CountWithError | undefined): number {
  return counted === undefined ? 0 : counted.count - counted.error;
}

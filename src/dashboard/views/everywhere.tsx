/** Identifiers in all namespaces: the busiest ones, and where one identifier is. */

import { byDenial, usedOf } from '../../core/window-rules.ts';
import type { ViewProps } from '../common/context.ts';
import { ErrorNote, useLoad, useTicks } from '../common/controls.tsx';
import { formatCount, formatDuration, formatSpan, formatWhole } from '../common/format.ts';
import { IdentifierActions } from '../common/identifier-actions.tsx';
import { call, callAll, type Response } from '../common/operations.ts';
import { RangeButtons, rangeOfAddress } from '../common/range.tsx';
import { linkTo } from '../common/router.ts';
import { type Column, SortedTable } from '../common/sorted-table.tsx';
import { State } from '../common/state.tsx';
import { Name, Time } from '../common/text.tsx';
import { rangeOf } from '../common/time-range.ts';
import { Ranking } from './ranking.tsx';

const REFRESH_MS = 5_000;
const IDENTIFIERS_SHOWN = 20;
/** The most of one response. */
const BEGINNING_SHOWN = 100;
/** weir has 10 000 namespaces at most. */
const PLACES_MAX = 10_000;

type Place = Response<'ratelimits.findIdentifier'>['found'][number];
type Known = Response<'analytics.searchIdentifiers'>['identifiers'][number];

/** The identifiers of all namespaces that were denied most often, and that spent most. */
export function Rankings({ route }: Pick<ViewProps, 'route'>) {
  const [range, setRange] = rangeOfAddress(route);
  const ticks = useTicks(REFRESH_MS);
  const top = useLoad(
    () => call('analytics.getIdentifiers', { limit: IDENTIFIERS_SHOWN, ...rangeOf(range) }),
    [range],
    ticks,
  );
  return (
    <section aria-labelledby="rankings">
      <div class="section-head">
        <h2 id="rankings">In all namespaces</h2>
        <RangeButtons range={range} onChoose={setRange} />
      </div>
      <ErrorNote error={top.error} />
      {top.data && (
        <>
          <div class="columns">
            <Ranking
              caption="Most denied identifiers"
              unit="Denied#"
              identifiers={top.data.denied}
            />
            <Ranking
              caption="Most spending identifiers"
              unit="Tokens#"
              identifiers={top.data.spent}
            />
          </div>
          <p class="hint">
            Identifiers are counted by hour: {formatSpan(top.data.start, top.data.end)}. Other
            identifiers exist: enter one to find it in all namespaces.
          </p>
        </>
      )}
    </section>
  );
}

/** The namespaces in which an identifier is. */
export function Places({ identifier }: { identifier: string }) {
  const places = useLoad(async () => {
    const operation = 'ratelimits.findIdentifier';
    const { items } = await callAll(operation, { identifier }, ({ found }) => found, PLACES_MAX);
    return items.toSorted(byDenial);
  }, [identifier]);
  return (
    <section aria-labelledby="places">
      <h2 id="places">
        Namespaces of <Name text={identifier} />
      </h2>
      <ErrorNote error={places.error} />
      {places.data?.length === 0 && (
        <p class="empty">
          <Name text={identifier} /> has no counter, no hold, no block, no override of its own and
          no recent decision.
        </p>
      )}
      {places.data !== undefined && places.data.length > 0 && (
        <SortedTable
          caption="The latest denial first, then the fullest counter"
          columns={placeColumns(identifier)}
          rows={places.data}
          keyOf={({ namespace }) => namespace.id}
        />
      )}
    </section>
  );
}

/** The known identifiers that begin with a text, and are longer. */
export function BeginningWith({ prefix }: { prefix: string }) {
  const search = useLoad(
    () => call('analytics.searchIdentifiers', { prefix, limit: BEGINNING_SHOWN }),
    [prefix],
  );
  const others = search.data?.identifiers.filter(({ identifier }) => identifier !== prefix) ?? [];
  return (
    <section aria-labelledby="beginning">
      <h2 id="beginning">
        Identifiers that begin with <Name text={prefix} />
      </h2>
      <ErrorNote error={search.error} />
      {others.length > 0 && (
        <SortedTable
          caption="The most denied first, of the last 24 hours"
          columns={KNOWN_COLUMNS}
          rows={others}
          keyOf={({ identifier, namespace }) => `${namespace.id} ${identifier}`}
        />
      )}
      {search.data && (
        <p class={others.length === 0 ? 'empty' : 'hint'}>
          {others.length === 0 && 'No other identifier is known. '}
          {search.data.truncated
            ? 'More are known: enter more characters.'
            : 'Others may exist, because counters do not have the texts of identifiers.'}
        </p>
      )}
    </section>
  );
}

const KNOWN_COLUMNS: readonly Column<Known>[] = [
  {
    name: 'Identifier',
    cell: ({ identifier, cutOff, namespace }) =>
      cutOff ? (
        <>
          <Name text={identifier} />…
        </>
      ) : (
        <a href={linkTo('identifier', '', { namespace: namespace.name, identifier })}>
          <Name text={identifier} />
        </a>
      ),
    value: ({ identifier }) => identifier,
  },
  {
    name: 'Namespace',
    cell: ({ namespace }) => <Name text={namespace.name} />,
    value: ({ namespace }) => namespace.name,
  },
  {
    name: 'Denied#',
    cell: ({ denied }) => denied && formatCount(denied),
    value: ({ denied }) => denied?.count,
  },
  {
    name: 'Tokens#',
    cell: ({ spent }) => spent && formatCount(spent),
    value: ({ spent }) => spent?.count,
  },
  {
    name: 'Last denied',
    cell: ({ lastDeniedAt }) => lastDeniedAt !== undefined && <Time ms={lastDeniedAt} />,
    value: ({ lastDeniedAt }) => lastDeniedAt,
  },
  { name: 'Known from', cell: ({ sources }) => sources.join(', ') },
  {
    name: 'Actions',
    cell: ({ identifier, cutOff, namespace }) =>
      !cutOff && <IdentifierActions namespace={namespace.name} identifier={identifier} />,
  },
];

function placeColumns(identifier: string): Column<Place>[] {
  return [
    {
      name: 'Namespace',
      cell: ({ namespace }) => (
        <a href={linkTo('identifier', '', { namespace: namespace.name, identifier })}>
          <Name text={namespace.name} />
        </a>
      ),
      value: ({ namespace }) => namespace.name,
    },
    {
      name: 'Last denied',
      cell: ({ lastDenied }) => lastDenied && <Time ms={lastDenied.until} />,
      value: ({ lastDenied }) => lastDenied?.until,
    },
    {
      name: 'Counters and holds',
      cell: (place) => [...counterTexts(place), ...holdTexts(place.holds)].join(', '),
    },
    {
      name: 'Override or block',
      cell: LimitCell,
      value: ({ block, override }) => (block === undefined ? override?.limit : 0),
    },
    {
      name: 'Actions',
      cell: ({ namespace }) => (
        <IdentifierActions namespace={namespace.name} identifier={identifier} />
      ),
    },
  ];
}

function LimitCell({ block, override }: Place) {
  if (block !== undefined) {
    return (
      <State meaning="denied">
        blocked until <Time ms={block.expires} />
      </State>
    );
  }
  if (override === undefined) return null;
  return (
    <>
      {`${formatWhole(override.limit)} per ${formatDuration(override.duration)} for `}
      <Name text={override.identifier} />
    </>
  );
}

function holdTexts(holds: Place['holds']): string[] {
  if (holds === undefined) return [];
  return [holds.live === 1 ? '1 live hold' : `${formatWhole(holds.live)} live holds`];
}

function counterTexts({ counters, last }: Place): string[] {
  return counters.map((counter) => {
    const used = formatWhole(usedOf(counter, last));
    return `${used} of ${formatWhole(counter.limit)} used per ${formatDuration(counter.duration)}`;
  });
}

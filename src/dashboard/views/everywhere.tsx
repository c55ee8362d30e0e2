/** Identifiers in all namespaces: the busiest ones, and where one identifier is. */

import { useState } from 'preact/hooks';
import { ErrorNote, Table, useLoad, useTicks } from '../common/controls.tsx';
import { formatDuration, formatWhole } from '../common/format.ts';
import { call, callAll, type Response } from '../common/operations.ts';
import { type Range, RangeSelect, rangeOf } from '../common/range.tsx';
import { linkTo } from '../common/router.ts';
import { Name, Time } from '../common/text.tsx';
import { Ranking } from './ranking.tsx';

const REFRESH_MS = 5_000;
const IDENTIFIERS_SHOWN = 20;
/** weir has 10 000 namespaces at most. */
const PLACES_MAX = 10_000;

type Place = Response<'ratelimits.findIdentifier'>['found'][number];

/** The identifiers of all namespaces that were denied most often, and that spent most. */
export function Rankings() {
  const [range, setRange] = useState<Range>('1h');
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
        <RangeSelect range={range} onChoose={setRange} />
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
            Counted in whole hours. Other identifiers exist: enter one to find it in all namespaces.
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
    return items.toSorted((a, b) => (b.lastDenied?.until ?? 0) - (a.lastDenied?.until ?? 0));
  }, [identifier]);
  return (
    <section aria-labelledby="places">
      <h2 id="places">
        Namespaces of <Name text={identifier} />
      </h2>
      <ErrorNote error={places.error} />
      {places.data?.length === 0 && (
        <p class="empty">
          <Name text={identifier} /> has no counter, no override of its own and no recent decision.
        </p>
      )}
      {places.data !== undefined && places.data.length > 0 && (
        <Table
          caption="The latest denial first"
          columns={['Namespace', 'Last denied', 'Counters', 'Override']}
        >
          {places.data.map((place) => (
            <PlaceRow key={place.namespace.id} identifier={identifier} place={place} />
          ))}
        </Table>
      )}
    </section>
  );
}

function PlaceRow({ identifier, place }: { identifier: string; place: Place }) {
  const { namespace, counters, override, lastDenied } = place;
  return (
    <tr>
      <th scope="row">
        <a href={linkTo('identifier', '', { namespace: namespace.name, identifier })}>
          <Name text={namespace.name} />
        </a>
      </th>
      <td>{lastDenied && <Time ms={lastDenied.until} />}</td>
      <td>{counters.map(counterText).join(', ')}</td>
      <td>
        {override !== undefined && (
          <>
            {`${formatWhole(override.limit)} per ${formatDuration(override.duration)} for `}
            <Name text={override.identifier} />
          </>
        )}
      </td>
    </tr>
  );
}

function counterText({ duration, limit, algorithms }: Place['counters'][number]): string {
  const [usage] = Object.values(algorithms);
  const used = formatWhole(usage?.used ?? 0);
  return `${used} of ${formatWhole(limit)} used per ${formatDuration(duration)}`;
}

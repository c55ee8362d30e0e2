/** Why the next check of an identifier is allowed or denied, as `ratelimits.explain` says. */

import { Figure, Note, Table } from '../common/controls.tsx';
import { formatCount, formatDuration, formatWhole } from '../common/format.ts';
import type { Response } from '../common/operations.ts';
import { State } from '../common/state.tsx';
import { End, Name, Time } from '../common/text.tsx';
import { kindOf } from './override-dialogs.tsx';

type Explanation = Response<'ratelimits.explain'>;
type Window = Explanation['windows'][number];
type Decision = Response<'analytics.getDecisions'>['decisions'][number];

/** The sources of a value, as a reader says them. */
const SOURCES: Readonly<Record<string, string>> = {
  request: 'this form',
  block: 'the block',
  override: 'the override',
  policy: 'the policy',
  decision: 'the last check',
  counter: 'the last counted check',
  default: 'the default',
};

export function ExplanationSection({ explanation }: { explanation: Explanation }) {
  const { success, reason, isExact, windows } = explanation;
  const kind = success === undefined ? 'info' : success ? 'success' : 'denied';
  return (
    <section aria-labelledby="explanation">
      <h2 id="explanation">Next check</h2>
      <Note kind={kind}>
        <Reason text={reason} />
      </Note>
      <Denials explanation={explanation} />
      {!isExact && (
        <p class="hint">Other machines, and tokens that this one holds, may change the decision.</p>
      )}
      {windows.length > 0 && (
        <Table
          caption="The windows that decide"
          columns={['Window', 'Limit#', 'Cost#', 'Left before#', 'Decision', 'Can pass', 'Reset']}
        >
          {windows.map((window, i) => (
            <WindowRow key={i} window={window} />
          ))}
        </Table>
      )}
      <Overrides explanation={explanation} />
    </section>
  );
}

/** Times in it are shown in the zone of the page. A quoted identifier or reason stays as it is. */
function Reason({ text }: { text: string }) {
  return text.split(QUOTED_OR_TIME).map((part, i) => {
    if (ISO_TIME.test(part)) return <Time key={i} ms={Date.parse(part)} />;
    return part.startsWith('"') ? <Name key={i} text={part} /> : part;
  });
}

const ISO_TIME = /^\d{4}-\d\d-\d\dT[\d:.]+Z$/;
const QUOTED_OR_TIME = /("(?:[^"\\]|\\.)*"|\d{4}-\d\d-\d\dT[\d:.]+Z)/;

/** When the identifier was last denied, and how often in this hour, as far as it is known. */
function Denials({ explanation: { recent, deniedThisHour } }: { explanation: Explanation }) {
  if (recent === undefined && deniedThisHour === undefined) return null;
  const { lastDenied, leftOut } = recent ?? {};
  const absent = leftOut === undefined ? 'not lately' : 'no record';
  return (
    <dl class="figures">
      {recent !== undefined && (
        <Figure
          name="Last denied"
          value={lastDenied === undefined ? absent : <Time ms={lastDenied.until} />}
          note={
            lastDenied === undefined ? (
              <>
                {leftOut !== undefined &&
                  `${formatWhole(leftOut)} denials of the namespace have none; `}
                the records begin at <Time ms={recent.since} />
              </>
            ) : (
              deniedBy(lastDenied)
            )
          }
        />
      )}
      {deniedThisHour !== undefined && (
        <Figure
          name="Denied this hour"
          value={formatCount(deniedThisHour)}
          note={
            <>
              since <Time ms={deniedThisHour.start} />
            </>
          }
        />
      )}
    </dl>
  );
}

function deniedBy({ source, limit = 0 }: Pick<Decision, 'source' | 'limit'>): string {
  return source === 'block' ? 'by a block' : `by a limit of ${formatWhole(limit)} of the ${source}`;
}

function WindowRow({ window }: { window: Window }) {
  const { success, left, reset, passesAt, terms } = window;
  return (
    <tr>
      <th scope="row">
        {`${formatDuration(terms.duration.value)} ${terms.algorithm.value}`}
        <span class="hint">{` (${SOURCES[terms.duration.from]})`}</span>
      </th>
      <td class="number">
        {formatWhole(terms.limit.value)}
        <span class="hint">{` (${SOURCES[terms.limit.from]})`}</span>
      </td>
      <td class="number">{formatWhole(terms.cost.value)}</td>
      <td class="number">{formatWhole(left)}</td>
      <td>
        <State meaning={success ? 'allowed' : 'denied'}>{success ? 'allowed' : 'denied'}</State>
      </td>
      <td>{success ? 'now' : passesAt === undefined ? 'never' : <Time ms={passesAt} />}</td>
      <td>
        <Time ms={reset} />
      </td>
    </tr>
  );
}

function Overrides({ explanation }: { explanation: Explanation }) {
  const { override, otherOverrides, matchingOverrides } = explanation;
  if (matchingOverrides === 0) return <p class="empty">No override matches.</p>;
  const hidden = matchingOverrides - (override === undefined ? 0 : 1) - otherOverrides.length;
  return (
    <>
      <Table
        caption="Overrides that match"
        columns={[
          'Namespace',
          'Identifier',
          'Kind',
          'Limit#',
          'Window',
          'Concurrency#',
          'Expires',
          'Result',
        ]}
      >
        {override !== undefined && (
          <tr>
            <OverrideCells override={override} />
            <td>
              <strong>applies</strong>
            </td>
          </tr>
        )}
        {otherOverrides.map((other) => (
          <tr key={other.id}>
            <OverrideCells override={other} />
            <td class="sentence">{`does not apply: ${other.reason}`}</td>
          </tr>
        ))}
      </Table>
      {hidden > 0 && <p class="hint">{`${formatWhole(hidden)} more match, and do not apply.`}</p>}
    </>
  );
}

function OverrideCells({ override }: { override: NonNullable<Explanation['override']> }) {
  const { namespace, identifier, limit, duration, concurrency, expires } = override;
  return (
    <>
      <td>
        <Name text={namespace} />
      </td>
      <th scope="row">
        <Name text={identifier} />
      </th>
      <td>{kindOf(override)}</td>
      <td class="number">{formatWhole(limit)}</td>
      <td>{formatDuration(duration)}</td>
      <td class="number">{concurrency !== undefined && formatWhole(concurrency)}</td>
      <td>
        <End ms={expires} />
      </td>
    </>
  );
}

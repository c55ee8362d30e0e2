/**
 * Identifiers: the most denied ones of all namespaces, and where one of them is. Of one identifier
 * in a namespace: why it is denied, what applies to it, its counters, recent decisions and holds, a
 * hypothetical check, a reset, and the end of a hold. A check counts like one of a client. The
 * address has the question, and the view shows its answer alone: a button first goes to the address
 * of what is in the form.
 */

import { useState } from 'preact/hooks';
import { DEFAULT_RULE } from '../../core/window-rules.ts';
import type { ViewProps } from '../common/context.ts';
import {
  Confirm,
  ErrorNote,
  Field,
  Note,
  Select,
  Table,
  useAction,
  useLoad,
} from '../common/controls.tsx';
import { formatDuration, formatWhole, parseDuration } from '../common/format.ts';
import { IdentifierActions } from '../common/identifier-actions.tsx';
import { NamespaceField } from '../common/namespace-field.tsx';
import { call, type Response } from '../common/operations.ts';
import { linkTo, navigate, useStateAt } from '../common/router.ts';
import { Name, Time } from '../common/text.tsx';
import { BlockIdentifier, EndBlock } from './block-dialogs.tsx';
import { DecisionTable } from './decision-table.tsx';
import { BeginningWith, Places, Rankings } from './everywhere.tsx';
import { ExplanationSection } from './explanation.tsx';
import { ResetCounters } from './reset-counters.tsx';

type Holds = Response<'ratelimits.inspect'>['holds'];
type Hold = Holds['list'][number];
type Counter = Response<'ratelimits.inspect'>['counters'][number];
type Decision = Response<'ratelimits.limit'>;
type Decisions = Response<'analytics.getDecisions'>['decisions'];

const ALGORITHMS = ['fixed', 'sliding', 'gcra'] as const;
const DEFAULT_WINDOW = '1m';
const DECISIONS_SHOWN = 10;

/** What the form asks, as text. An empty field is left to the override, the policy or weir. */
interface Question {
  namespace: string;
  identifier: string;
  limit: string;
  duration: string;
  cost: string;
  algorithm: string;
}

function questionOf(query: URLSearchParams): Question {
  const read = (name: keyof Question, byDefault = '') => query.get(name) ?? byDefault;
  return {
    namespace: read('namespace'),
    identifier: read('identifier'),
    limit: read('limit'),
    duration: read('duration', DEFAULT_WINDOW),
    cost: read('cost'),
    algorithm: read('algorithm'),
  };
}

function addressOf({ namespace, identifier, limit, duration, cost, algorithm }: Question): string {
  return linkTo('identifier', '', {
    ...{ namespace, identifier },
    ...(limit !== '' && { limit, duration }),
    ...(cost !== '' && { cost }),
    ...(algorithm !== '' && { algorithm }),
  });
}

/** Whether it is about a check that no client may send. */
function hasTerms({ limit, cost, algorithm }: Question): boolean {
  return [limit, cost, algorithm].some((text) => text !== '');
}

/** What is known of an identifier. The explanation is absent without the permission for it. */
interface Knowledge {
  counters: readonly Counter[];
  holds: Holds;
  explanation: Response<'ratelimits.explain'> | undefined;
  /** Absent without the permission for them. */
  decisions: Decisions | undefined;
}

/** What a button did. */
interface Outcome {
  decision?: Decision;
  /** What a block, or its end, has changed. */
  blocked?: string;
  /** Counters that a reset has removed. */
  cleared?: number;
  /** A hold that was ended. */
  ended?: Response<'ratelimits.endHold'> & { handle: string };
  error?: Error;
}

/** The question as fields of a check. */
function checkFieldsOf({ namespace, identifier, duration, ...terms }: Question) {
  const { limit, cost, algorithm } = terms;
  return {
    ...{ namespace, identifier },
    ...(limit !== '' && { limit: Number(limit), duration: parseDuration(duration) ?? duration }),
    ...(cost !== '' && { cost: Number(cost) }),
    ...(algorithm !== '' && { algorithm }),
  };
}

/** The newest denials. An identifier without one has the newest decisions. */
async function decisionsOn(namespaceName: string, identifier: string): Promise<Decisions> {
  const fields = { namespaceName, identifier, limit: DECISIONS_SHOWN };
  const denied = await call('analytics.getDecisions', { ...fields, decision: 'denied' });
  if (denied.decisions.length > 0) return denied.decisions;
  return (await call('analytics.getDecisions', fields)).decisions;
}

export function IdentifierView({ grant, route }: ViewProps) {
  const question = questionOf(route.query);
  const address = addressOf(question);
  const [form, setForm] = useStateAt(address, question);
  const [outcome, setOutcome] = useStateAt<Outcome>(address, {});
  const [resetting, setResetting] = useState<Question>();
  const [ending, setEnding] = useState<Hold>();
  const [blocking, setBlocking] = useState<'set' | 'end'>();
  const mayReset = grant.mayInSome('reset');
  const mayRead = grant.mayInSome('read_namespace');
  const isAsked = route.query.has('identifier') && question.namespace !== '';
  const isSought = route.query.has('identifier') && !isAsked;
  const answer = useLoad(async (): Promise<Knowledge | undefined> => {
    if (!isAsked || !mayRead) return undefined;
    const { namespace, identifier } = question;
    const explanation = grant.mayInSome('read_override')
      ? await call('ratelimits.explain', checkFieldsOf(question))
      : undefined;
    const { counters, holds } = await call('ratelimits.inspect', { namespace, identifier });
    // The explanation has none where the key may not read them, or they are off.
    const decisions =
      explanation?.recent && (await decisionsOn(explanation.namespace, explanation.identifier));
    // Those of the explanation leave out the algorithms that no check uses.
    const shown = explanation?.counters ?? counters;
    return { counters: shown, holds, explanation, decisions };
  }, [address, isAsked]);
  const mayBlock = grant.mayInSome('set_override');
  const isBlocked = answer.data?.explanation?.block !== undefined;
  const mayUnblock = isBlocked && grant.mayInSome('delete_override');
  const blockProps = {
    target: question,
    grant,
    onDone: (blocked: string) => {
      setBlocking(undefined);
      setOutcome({ blocked }, address);
      answer.reload();
    },
    onClose: () => setBlocking(undefined),
  };
  /** Goes to the address of a question, changes something, and shows what is known after it. */
  const change = useAction(async (asked: Question, run: () => Promise<Outcome>) => {
    const at = addressOf(asked);
    setOutcome({}, at);
    navigate(at);
    try {
      setOutcome(await run(), at);
    } catch (error) {
      setOutcome({ error: error as Error }, at);
    }
    answer.reload();
  });
  const show = () => {
    const at = addressOf(form);
    setOutcome({}, at);
    if (at === address && isAsked) answer.reload();
    else navigate(at);
  };
  const check = async () => {
    // v1 counts in fixed windows by default, unlike policies, v2 and explain.
    const fields = { algorithm: DEFAULT_RULE, ...checkFieldsOf(form) };
    return { decision: await call('ratelimits.limit', fields) };
  };
  const setField = (name: keyof Question, value: string) => setForm({ ...form, [name]: value });
  return (
    <>
      <h1 tabIndex={-1}>Identifier</h1>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          show();
        }}
      >
        <div class="fields">
          <NamespaceField
            grant={grant}
            value={form.namespace}
            onChange={(name) => setField('namespace', name)}
          />
          <Field
            label="Identifier"
            value={form.identifier}
            onInput={({ currentTarget }) => setField('identifier', currentTarget.value)}
          />
        </div>
        <div class="buttons">
          {mayRead && (
            <button type="submit" class="primary" disabled={answer.isLoading}>
              Show
            </button>
          )}
        </div>
      </form>
      {outcome.blocked !== undefined && <Note kind="success">{outcome.blocked}</Note>}
      {outcome.cleared !== undefined && (
        <Note kind="success">{`Counters that were reset: ${formatWhole(outcome.cleared)}.`}</Note>
      )}
      {outcome.ended !== undefined && (
        <Note kind="success">
          {`The ${outcome.ended.kind} ${outcome.ended.handle} has ended. `}
          {`Released tokens: ${formatWhole(outcome.ended.released)}.`}
        </Note>
      )}
      <ErrorNote error={outcome.error ?? answer.error} />
      {outcome.decision !== undefined && <DecisionNote decision={outcome.decision} />}
      {answer.data !== undefined && (
        <KnowledgeSection
          knowledge={answer.data}
          {...question}
          onRelease={mayReset ? setEnding : undefined}
        />
      )}
      {isSought && mayRead && <Places identifier={question.identifier} />}
      {isSought && question.identifier !== '' && grant.mayInSome('read_analytics') && (
        <BeginningWith prefix={question.identifier} />
      )}
      {!route.query.has('identifier') && grant.mayInSome('read_analytics') && (
        <Rankings route={route} />
      )}
      {isAsked && (
        <details open={hasTerms(question)}>
          <summary>A hypothetical check</summary>
          <form
            onSubmit={(event) => {
              event.preventDefault();
              show();
            }}
          >
            <div class="fields">
              <Field
                label="Limit"
                type="number"
                min="1"
                value={form.limit}
                onInput={({ currentTarget }) => setField('limit', currentTarget.value)}
              />
              <Field
                label="Window"
                value={form.duration}
                onInput={({ currentTarget }) => setField('duration', currentTarget.value)}
              />
              <Field
                label="Cost"
                type="number"
                min="0"
                value={form.cost}
                onInput={({ currentTarget }) => setField('cost', currentTarget.value)}
              />
              <Select
                label="Algorithm"
                value={form.algorithm}
                onChoose={(name) => setField('algorithm', name)}
                options={[
                  ['', `default (${DEFAULT_RULE})`],
                  ...ALGORITHMS.map((name) => [name, name] as const),
                ]}
              />
            </div>
            <p class="hint">
              Without a limit, that of the override, the policy or the last check is explained.
              “Check” counts like a check of a client, unless its cost is 0.
            </p>
            <div class="buttons">
              {mayRead && (
                <button type="submit" disabled={answer.isLoading}>
                  Explain
                </button>
              )}
              {grant.mayInSome('limit') && (
                <button
                  type="button"
                  disabled={change.isRunning}
                  onClick={() => change.run(form, check)}
                >
                  Check
                </button>
              )}
            </div>
          </form>
        </details>
      )}
      {isAsked && (mayReset || mayBlock || mayUnblock) && (
        <section class="danger-zone" aria-label="Block and reset">
          {mayBlock && (
            <button type="button" class="danger" onClick={() => setBlocking('set')}>
              Block
            </button>
          )}
          {mayUnblock && (
            <button type="button" class="danger" onClick={() => setBlocking('end')}>
              End the block
            </button>
          )}
          {mayReset && (
            <button type="button" class="danger" onClick={() => setResetting(form)}>
              Reset
            </button>
          )}
        </section>
      )}
      {blocking === 'set' && <BlockIdentifier {...blockProps} />}
      {blocking === 'end' && <EndBlock {...blockProps} />}
      {resetting !== undefined && (
        <ResetCounters
          target={resetting}
          grant={grant}
          onDone={(cleared) => {
            const at = addressOf(resetting);
            setOutcome({ cleared }, at);
            navigate(at);
            answer.reload();
          }}
          onClose={() => setResetting(undefined)}
        />
      )}
      {ending !== undefined && (
        <Confirm
          title={`Release the ${ending.kind}?`}
          action={`Release ${ending.kind}`}
          run={async () => {
            const { namespace, identifier } = question;
            const { handle } = ending;
            const hold = { namespace, identifier, handle };
            setOutcome({ ended: { ...(await call('ratelimits.endHold', hold)), handle } }, address);
            answer.reload();
          }}
          onClose={() => setEnding(undefined)}
        >
          <p>
            Another client has the {ending.kind} {ending.handle} of{' '}
            <Name text={question.identifier} /> in <Name text={question.namespace} />. Its tokens
            are free at once, although the work of that client may go on.
          </p>
        </Confirm>
      )}
    </>
  );
}

function DecisionNote({ decision }: { decision: Decision }) {
  const { success, limit, remaining, reset } = decision;
  return (
    <Note kind={success ? 'success' : 'denied'}>
      The check is <strong>{success ? 'allowed' : 'denied'}</strong>.{' '}
      {`${formatWhole(remaining)} of ${formatWhole(limit)} tokens remain. Reset: `}
      <Time ms={reset} />
    </Note>
  );
}

interface KnowledgeProps {
  knowledge: Knowledge;
  namespace: string;
  identifier: string;
  /** Undefined without the permission for it. */
  onRelease: ((hold: Hold) => void) | undefined;
}

function KnowledgeSection({ knowledge, namespace, identifier, onRelease }: KnowledgeProps) {
  const { counters, holds, explanation, decisions = [] } = knowledge;
  return (
    <>
      <div class="with-copy">
        <p class="hint">
          The answer for <Name text={identifier} /> in the namespace <Name text={namespace} />:
        </p>
        <IdentifierActions namespace={namespace} identifier={identifier} />
      </div>
      {explanation !== undefined && <ExplanationSection explanation={explanation} />}
      <section aria-labelledby="counters">
        <h2 id="counters">Counters</h2>
        {counters.length === 0 ? (
          <p class="empty">
            <Name text={identifier} /> has no counters in <Name text={namespace} />.
          </p>
        ) : (
          <Table
            caption="Counters by window and algorithm"
            columns={['Window', 'Algorithm', 'Limit#', 'Used#', 'Remaining#', 'Reset']}
          >
            {counters.flatMap(({ duration, limit, algorithms }) =>
              ALGORITHMS.map((algorithm) => {
                const usage = algorithms[algorithm];
                if (usage === undefined) return null;
                return (
                  <tr key={`${duration} ${algorithm}`}>
                    <th scope="row">{formatDuration(duration)}</th>
                    <td>{algorithm}</td>
                    <td class="number">{formatWhole(limit)}</td>
                    <td class="number">{formatWhole(usage.used)}</td>
                    <td class="number">{formatWhole(usage.remaining)}</td>
                    <td>
                      <Time ms={usage.reset} />
                    </td>
                  </tr>
                );
              }),
            )}
          </Table>
        )}
      </section>
      {decisions.length > 0 && (
        <section aria-labelledby="decisions">
          <h2 id="decisions">Recent decisions</h2>
          <DecisionTable
            caption={
              decisions[0].decision === 'denied'
                ? 'The newest denials'
                : 'The newest decisions: none is a denial'
            }
            decisions={decisions}
            isOfOne
          />
          <p>
            <a href={linkTo('decisions', '', { namespace, identifier, decision: '' })}>
              All recent decisions
            </a>
          </p>
        </section>
      )}
      {holds.live > 0 && <HoldSection holds={holds} onRelease={onRelease} />}
    </>
  );
}

interface HoldProps extends Pick<KnowledgeProps, 'onRelease'> {
  holds: Holds;
}

function HoldSection({ holds: { reserved, inUse, live, list }, onRelease }: HoldProps) {
  const columns = ['Handle', 'Kind', 'Tokens#', 'Limit#', 'Window', 'Ends'];
  return (
    <section aria-labelledby="holds">
      <h2 id="holds">Reservations and leases</h2>
      <p class="hint">
        {`${formatWhole(live)} live. Reserved tokens: ${formatWhole(reserved)}, `}
        {`which the counters count as used. Tokens in use by leases: ${formatWhole(inUse)}.`}
      </p>
      <Table
        caption="Live reservations and leases, the first to end first"
        columns={onRelease === undefined ? columns : [...columns, 'Actions']}
      >
        {list.map((hold) => (
          <HoldRow key={hold.handle} hold={hold} onRelease={onRelease} />
        ))}
      </Table>
    </section>
  );
}

function HoldRow({ hold, onRelease }: Pick<HoldProps, 'onRelease'> & { hold: Hold }) {
  const { handle, kind, tokens, limit, duration, algorithm, expiresAt } = hold;
  return (
    <tr>
      <th scope="row">{handle}</th>
      <td>{kind}</td>
      <td class="number">{formatWhole(tokens)}</td>
      <td class="number">{formatWhole(limit)}</td>
      <td>{duration === undefined ? '' : `${formatDuration(duration)} ${algorithm}`}</td>
      <td>
        <Time ms={expiresAt} />
      </td>
      {onRelease !== undefined && (
        <td class="actions">
          <button
            type="button"
            class="danger"
            aria-label={`Release ${handle}`}
            onClick={() => onRelease(hold)}
          >
            Release
          </button>
        </td>
      )}
    </tr>
  );
}

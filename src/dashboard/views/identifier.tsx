/**
 * One identifier: what applies to it, its counters, a check with a cost, and a reset. A check
 * counts like one of a client.
 */

import { useEffect, useState } from 'preact/hooks';
import type { ViewProps } from '../common/context.ts';
import { Confirm, ErrorNote, Field, Note, Select, Table, useAction } from '../common/controls.tsx';
import { formatDuration, formatWhole, parseDuration } from '../common/format.ts';
import { useNamespaces } from '../common/namespaces.ts';
import { call, type Response } from '../common/operations.ts';
import { Name, Time } from '../common/text.tsx';
import { ExplanationSection } from './explanation.tsx';

type Counter = Response<'ratelimits.inspect'>['counters'][number];
type Decision = Response<'ratelimits.limit'>;

const ALGORITHMS = ['fixed', 'sliding', 'gcra'] as const;

/** What is known of an identifier. The explanation is absent without the permission for it. */
interface Knowledge {
  namespace: string;
  identifier: string;
  counters: readonly Counter[] | undefined;
  explanation: Response<'ratelimits.explain'> | undefined;
}

export function IdentifierView({ grant, route }: ViewProps) {
  const namespaces = useNamespaces(grant);
  const [namespace, setNamespace] = useState(route.query.get('namespace') ?? 'default');
  const [identifier, setIdentifier] = useState(route.query.get('identifier') ?? '');
  const [limit, setLimit] = useState('');
  const [duration, setDuration] = useState('1m');
  const [cost, setCost] = useState('1');
  const [algorithm, setAlgorithm] = useState('fixed');
  const [knowledge, setKnowledge] = useState<Knowledge>();
  const [decision, setDecision] = useState<Decision>();
  const [isResetting, setResetting] = useState(false);
  const [done, setDone] = useState('');

  const checkFields = () => ({
    ...(limit !== '' && { limit: Number(limit) }),
    ...(duration !== '' && { duration: parseDuration(duration) ?? duration }),
    ...(cost !== '' && { cost: Number(cost) }),
  });
  const show = useAction(async () => {
    setKnowledge(undefined);
    // Without a limit, the terms of the override or the policy are explained.
    const terms = limit === '' ? {} : { algorithm, ...checkFields() };
    const amount = cost === '' ? {} : { cost: Number(cost) };
    const explanation = grant.mayInSome('read_override')
      ? await call('ratelimits.explain', { namespace, identifier, ...terms, ...amount })
      : undefined;
    const found = await call('ratelimits.inspect', { namespace, identifier });
    setKnowledge({ namespace, identifier, counters: found.counters, explanation });
  });
  const check = useAction(async () => {
    setDecision(undefined);
    const fields = { namespace, identifier, algorithm, ...checkFields() };
    setDecision(await call('ratelimits.limit', fields));
  });
  const mayRead = grant.mayInSome('read_namespace');
  // A link to this view names the identifier to show.
  useEffect(() => {
    if (route.query.has('identifier') && mayRead) void show.run();
  }, []);
  const clear = () => {
    setDone('');
    check.clear();
    setDecision(undefined);
  };
  return (
    <>
      <h1 tabIndex={-1}>Identifier</h1>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          clear();
          if (mayRead) void show.run();
        }}
      >
        <datalist id="namespaces">
          {namespaces.data?.map(({ id, name }) => (
            <option key={id} value={name} />
          ))}
        </datalist>
        <div class="fields">
          <Field
            label="Namespace"
            list="namespaces"
            required
            value={namespace}
            onInput={({ currentTarget }) => setNamespace(currentTarget.value)}
          />
          <Field
            label="Identifier"
            value={identifier}
            onInput={({ currentTarget }) => setIdentifier(currentTarget.value)}
          />
        </div>
        <fieldset>
          <legend>A check of this identifier</legend>
          <div class="fields">
            <Field
              label="Limit"
              type="number"
              min="1"
              value={limit}
              onInput={({ currentTarget }) => setLimit(currentTarget.value)}
            />
            <Field
              label="Window"
              value={duration}
              onInput={({ currentTarget }) => setDuration(currentTarget.value)}
            />
            <Field
              label="Cost"
              type="number"
              min="0"
              value={cost}
              onInput={({ currentTarget }) => setCost(currentTarget.value)}
            />
            <Select
              label="Algorithm"
              value={algorithm}
              onChoose={setAlgorithm}
              options={ALGORITHMS.map((name) => [name, name] as const)}
            />
          </div>
          <p class="hint">
            Without a limit, those of the override or the policy are explained. With a cost of 0, a
            check counts nothing.
          </p>
        </fieldset>
        <div class="buttons">
          {mayRead && (
            <button type="submit" class="primary" disabled={show.isRunning}>
              Show
            </button>
          )}
          {grant.mayInSome('limit') && (
            <button
              type="button"
              disabled={check.isRunning}
              onClick={async () => {
                clear();
                if ((await check.run()) && mayRead) await show.run();
              }}
            >
              Check
            </button>
          )}
          {grant.mayInSome('reset') && (
            <button
              type="button"
              class="danger"
              onClick={() => {
                clear();
                setResetting(true);
              }}
            >
              Reset
            </button>
          )}
        </div>
      </form>
      {done !== '' && <Note kind="success">{done}</Note>}
      <ErrorNote error={check.error ?? show.error} />
      {decision !== undefined && <DecisionNote decision={decision} />}
      {knowledge !== undefined && <KnowledgeSection knowledge={knowledge} />}
      {isResetting && (
        <Confirm
          title="Reset the counters?"
          action="Reset"
          run={async () => {
            const { cleared } = await call('ratelimits.reset', { namespace, identifier });
            setDone(`Counters that were reset: ${formatWhole(cleared)}.`);
            if (mayRead) await show.run();
          }}
          onClose={() => setResetting(false)}
        >
          <p>
            All counters of <Name text={identifier} /> in <Name text={namespace} /> are removed. Its
            next check finds all tokens.
          </p>
        </Confirm>
      )}
    </>
  );
}

function DecisionNote({ decision }: { decision: Decision }) {
  const { success, limit, remaining, reset } = decision;
  return (
    <Note kind={success ? 'success' : 'warning'}>
      The check is <strong>{success ? 'allowed' : 'denied'}</strong>.{' '}
      {`${formatWhole(remaining)} of ${formatWhole(limit)} tokens remain. Reset: `}
      <Time ms={reset} />
    </Note>
  );
}

function KnowledgeSection({ knowledge }: { knowledge: Knowledge }) {
  const { namespace, identifier, counters, explanation } = knowledge;
  return (
    <>
      {explanation !== undefined && <ExplanationSection explanation={explanation} />}
      <section aria-labelledby="counters">
        <h2 id="counters">Counters</h2>
        {counters?.length === 0 ? (
          <p class="empty">
            <Name text={identifier} /> has no counters in <Name text={namespace} />.
          </p>
        ) : (
          <Table
            caption="Counters by window and algorithm"
            columns={['Window', 'Algorithm', 'Limit#', 'Used#', 'Remaining#', 'Reset']}
          >
            {counters?.flatMap(({ duration, limit, algorithms }) =>
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
    </>
  );
}

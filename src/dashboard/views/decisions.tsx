/**
 * The recent decisions: the denials of the last minutes, and a sample of the allowed checks. The
 * address has the filter.
 */

import type { ViewProps } from '../common/context.ts';
import { ErrorNote, Field, Select, Unavailable, useLoad, useTicks } from '../common/controls.tsx';
import { NamespaceField } from '../common/namespace-field.tsx';
import { call } from '../common/operations.ts';
import { linkTo, navigate, useStateAt } from '../common/router.ts';
import { Time } from '../common/text.tsx';
import { DecisionTable } from './decision-table.tsx';

const REFRESH_MS = 2_000;

/** As text; '' for any. */
interface Filter {
  namespace: string;
  identifier: string;
  decision: string;
  source: string;
}

function filterOf(query: URLSearchParams): Filter {
  const read = (name: keyof Filter, byDefault = '') => query.get(name) ?? byDefault;
  return {
    namespace: read('namespace'),
    identifier: read('identifier'),
    decision: read('decision', 'denied'),
    source: read('source'),
  };
}

export function DecisionsView({ grant, route }: ViewProps) {
  const filter = filterOf(route.query);
  const address = linkTo('decisions', '', { ...filter });
  const [form, setForm] = useStateAt(address, filter);
  const isPermitted = grant.mayInSome('read_analytics');
  const ticks = useTicks(REFRESH_MS);
  const load = useLoad(
    async () => {
      if (!isPermitted) return undefined;
      const { namespace, identifier, decision, source } = filter;
      return call('analytics.getDecisions', {
        namespaceName: namespace || undefined,
        identifier: identifier || undefined,
        decision: decision || undefined,
        source: source || undefined,
      });
    },
    [address],
    ticks,
  );
  const go = (changes: Partial<Filter>) => {
    navigate(linkTo('decisions', '', { ...form, ...changes }));
  };
  const { decisions = [], since, cursor } = load.data ?? {};
  return (
    <>
      <h1 tabIndex={-1}>Recent decisions</h1>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          go({});
        }}
      >
        <div class="fields">
          <NamespaceField
            grant={grant}
            value={form.namespace}
            onChange={(namespace) => setForm({ ...form, namespace })}
          />
          <Field
            label="Identifier"
            placeholder="all"
            value={form.identifier}
            onInput={({ currentTarget }) => setForm({ ...form, identifier: currentTarget.value })}
          />
          <Select
            label="Decision"
            value={form.decision}
            onChoose={(decision) => go({ decision })}
            options={[
              ['denied', 'denied'],
              ['allowed', 'allowed (a sample)'],
              ['', 'both'],
            ]}
          />
          <Select
            label="Limit set by"
            value={form.source}
            onChoose={(source) => go({ source })}
            options={[
              ['', 'anything'],
              ['block', 'a block'],
              ['override', 'an override'],
              ['policy', 'the policy'],
              ['request', 'the request'],
            ]}
          />
        </div>
        <div class="buttons">
          <button type="submit" class="primary">
            Show
          </button>
        </div>
      </form>
      {!isPermitted && <Unavailable permission="read_analytics" what="see decisions" />}
      <ErrorNote error={load.error} />
      {since !== undefined && decisions.length === 0 && (
        <p class="empty">
          There is no such decision since <Time ms={since} />, when the records begin.
        </p>
      )}
      {since !== undefined && decisions.length > 0 && (
        <>
          <DecisionTable
            caption="The newest first"
            decisions={decisions}
            isPartial={cursor !== undefined}
          />
          <p class="hint">
            The records begin at <Time ms={since} />. Denials of an identifier within a second are
            one record. “Left out” counts further denials of the namespace without a record.
            {cursor !== undefined &&
              ' There are more records: choose a namespace or an identifier.'}
          </p>
        </>
      )}
    </>
  );
}

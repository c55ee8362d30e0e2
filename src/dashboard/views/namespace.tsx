/** One namespace: its decisions over time, its busiest identifiers, its policy and overrides. */

import type { ViewProps } from '../common/context.ts';
import { ErrorNote, Note, Table, Unavailable, useLoad } from '../common/controls.tsx';
import { Copy } from '../common/copy.tsx';
import { formatDuration, formatWhole } from '../common/format.ts';
import { useNamespaces } from '../common/namespaces.ts';
import { call, callAll } from '../common/operations.ts';
import { linkTo } from '../common/router.ts';
import { End, Name } from '../common/text.tsx';
import { Blocks } from './blocks.tsx';
import { DeleteNamespace } from './delete-namespace.tsx';
import { NamespaceFigures } from './namespace-figures.tsx';
import { kindOf } from './override-dialogs.tsx';
import { PolicyDetails } from './policies.tsx';

const POLICIES_MAX = 1_000;
/** Overrides in this view; the view of overrides has all of them. */
const OVERRIDES_SHOWN = 20;

export function NamespaceView({ grant, live, route }: ViewProps) {
  const namespaceName = route.item;
  const known = useNamespaces(grant);
  const id =
    known.data?.find(({ name }) => name === namespaceName)?.id ??
    live.history.at(-1)?.namespaces.find(({ name }) => name === namespaceName)?.id;
  return (
    <>
      <p class="breadcrumb">
        <a href={linkTo('namespaces')}>Namespaces</a>
      </p>
      <h1 tabIndex={-1}>
        <Name text={namespaceName} />
      </h1>
      {id !== undefined && (
        <p class="hint with-copy">
          <code>{id}</code>
          <Copy text={id} />
        </p>
      )}
      <ErrorNote error={known.error} />
      {!known.isLoading && id === undefined && (
        <Note kind="info">There is no namespace of this name, or you may not see it.</Note>
      )}
      {grant.may('read_analytics', id) ? (
        <NamespaceFigures namespaceName={namespaceName} live={live} route={route} />
      ) : (
        <Unavailable permission="read_analytics" what="see figures of this namespace" />
      )}
      {grant.may('read_namespace', id) && <PolicySection namespaceName={namespaceName} />}
      {id !== undefined && grant.may('read_override', id) && (
        <OverridesSection namespaceName={namespaceName} namespaceId={id} />
      )}
      {id !== undefined && grant.may('read_override', id) && (
        <Blocks namespace={namespaceName} grant={grant} />
      )}
      {id !== undefined && grant.may('delete_namespace', id) && (
        <DeleteNamespace name={namespaceName} id={id} grant={grant} />
      )}
    </>
  );
}

function PolicySection({ namespaceName }: { namespaceName: string }) {
  const policy = useLoad(async () => {
    const { items } = await callAll(
      'ratelimits.listPolicies',
      {},
      ({ policies }) => policies,
      POLICIES_MAX,
    );
    return items.filter(({ namespace }) => namespace === namespaceName);
  }, [namespaceName]);
  return (
    <section aria-labelledby="policy">
      <h2 id="policy">Policy</h2>
      <ErrorNote error={policy.error} />
      {policy.data?.length === 0 && (
        <p class="empty">This namespace has no gateway policy. Each check names its own limit.</p>
      )}
      {policy.data?.map((one) => (
        <PolicyDetails key={one.namespace} policy={one} />
      ))}
    </section>
  );
}

function OverridesSection(props: { namespaceName: string; namespaceId: string }) {
  const { namespaceName, namespaceId } = props;
  const list = useLoad(
    () => call('ratelimits.listOverrides', { namespaceId, limit: OVERRIDES_SHOWN }),
    [namespaceId],
  );
  return (
    <section aria-labelledby="overrides">
      <h2 id="overrides">Overrides</h2>
      <ErrorNote error={list.error} />
      {list.data?.overrides.length === 0 && <p class="empty">This namespace has no overrides.</p>}
      {list.data !== undefined && list.data.overrides.length > 0 && (
        <Table
          caption="Overrides of this namespace"
          columns={['Identifier', 'Kind', 'Limit#', 'Window#', 'Concurrency#', 'Expires']}
        >
          {list.data.overrides.map(({ id, limit, duration, concurrency, expires, ...selector }) => (
            <tr key={id}>
              <th scope="row">
                <Name text={selector.identifier} />
              </th>
              <td>{kindOf(selector)}</td>
              <td class="number">{formatWhole(limit)}</td>
              <td class="number">{formatDuration(duration)}</td>
              <td class="number">{concurrency !== undefined && formatWhole(concurrency)}</td>
              <td>
                <End ms={expires} />
              </td>
            </tr>
          ))}
        </Table>
      )}
      <p>
        <a href={linkTo('overrides', '', { namespace: namespaceName })}>
          Search and change its overrides
        </a>
      </p>
    </section>
  );
}

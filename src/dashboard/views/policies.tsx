/** The active gateway policies. They come from the configuration file, so nothing is changed. */

import { useState } from 'preact/hooks';
import { DEFAULT_RULE } from '../../core/window-rules.ts';
import type { ViewProps } from '../common/context.ts';
import { ErrorNote, Field, Table, useLoad } from '../common/controls.tsx';
import { Copy } from '../common/copy.tsx';
import { formatDuration, formatWhole } from '../common/format.ts';
import { callAll, type Response } from '../common/operations.ts';
import { linkTo } from '../common/router.ts';
import { Name } from '../common/text.tsx';
import { visibleText } from '../common/visible-text.ts';

type Policy = Response<'ratelimits.listPolicies'>['policies'][number];

/** weir has 1 000 policies at most. */
const POLICIES_MAX = 1_000;

export function PoliciesView(_props: ViewProps) {
  const [filter, setFilter] = useState('');
  const list = useLoad(async () => {
    const pages = await callAll(
      'ratelimits.listPolicies',
      {},
      ({ policies, gateway }) => policies.map((policy) => ({ policy, gateway })),
      POLICIES_MAX,
    );
    return pages.items;
  }, []);
  const shown = list.data?.filter(({ policy }) => {
    return policy.namespace.toLowerCase().includes(filter.toLowerCase());
  });
  const gateway = list.data?.[0]?.gateway;
  return (
    <>
      <h1 tabIndex={-1}>Policies</h1>
      <p class="hint">
        Policies of gateways, from the configuration file. SIGHUP reads the file again.
        {gateway?.url !== undefined && (
          <>
            {' '}
            Gateways send checks to{' '}
            <span class="with-copy">
              <code>{gateway.url}</code>
              <Copy text={gateway.url} />
            </span>
            .
          </>
        )}
      </p>
      <ErrorNote error={list.error} />
      {list.data !== undefined && list.data.length > 0 && (
        <div class="toolbar">
          <Field
            label="Namespace contains"
            type="search"
            value={filter}
            onInput={({ currentTarget }) => setFilter(currentTarget.value)}
          />
        </div>
      )}
      {shown?.length === 0 && (
        <p class="empty">There is no policy. Each check names its own limit.</p>
      )}
      <div class="policies">
        {shown?.map(({ policy }) => (
          <section key={policy.namespace} class="policy">
            <h2>
              <a href={linkTo('namespaces', policy.namespace)}>
                <Name text={policy.namespace} />
              </a>
            </h2>
            <PolicyDetails policy={policy} />
          </section>
        ))}
      </div>
    </>
  );
}

export function PolicyDetails({ policy }: { policy: Policy }) {
  const gateways = [policy.gateway].flat().join(', ');
  return (
    <>
      {policy.shadow && (
        <p class="tag-line">
          <span class="tag">shadow</span> decides and counts, but denies no request
        </p>
      )}
      <Table
        caption={`Windows of ${visibleText(policy.namespace)}: all must allow a request`}
        columns={['Limit#', 'Window#', 'Algorithm', 'Burst#']}
      >
        {policy.windows.map(({ limit, duration, algorithm = DEFAULT_RULE, burst }) => (
          <tr key={`${limit} ${duration} ${algorithm}`}>
            <td class="number">{formatWhole(limit)}</td>
            <td class="number">{formatDuration(duration)}</td>
            <td>{algorithm}</td>
            <td class="number">{burst === undefined ? '–' : formatWhole(burst)}</td>
          </tr>
        ))}
      </Table>
      <dl class="properties">
        <Property name="Gateway" value={gateways} />
        <Property name="Identified by" value={policy.identify.join(' + ')} />
        <Property name="Cost" value={formatWhole(policy.cost)} />
        <Property name="Trusted proxies" value={formatWhole(policy.trustedHops)} />
        <Property name="IPv6 prefix" value={`/${policy.ipv6Prefix}`} />
        <Property name="Not checked" value={policy.skip?.join(', ') ?? 'nothing'} />
        <Property name="Without identity" value={policy.missing} />
        <Property name="If weir fails" value={policy.onError} />
        <Property name="X-RateLimit headers" value={policy.legacyHeaders ? 'sent' : 'not sent'} />
      </dl>
    </>
  );
}

function Property({ name, value }: { name: string; value: string }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>
        <Name text={value} />
      </dd>
    </div>
  );
}

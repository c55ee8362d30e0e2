/** The series of reservations and leases, without a server. */

import { expect, test } from 'vitest';
import { registerHoldSeries } from '../../src/observe/hold-series.ts';
import {
  METRICS,
  type MetricName,
  metricDeclaration,
} from '../../src/observe/metric-declarations.ts';
import { MetricSeries } from '../../src/observe/series.ts';
import { allocateControl, Control } from '../../src/shared-memory/control.ts';

test('without records in its memory, an engine has all series but those of live holds', async () => {
  const control = new Control(allocateControl(1, 1));
  const series = new MetricSeries();
  registerHoldSeries(series, {
    acceptors: control.allAcceptorStats(),
    workers: control.allWorkerStats(),
    stats: undefined,
    whenFull: 'deny',
  });
  const names = [...(await series.text()).matchAll(/^# TYPE (\w+)/gm)].map(([, name]) => name);
  const declared = (Object.keys(METRICS) as MetricName[]).filter((name) => {
    const { group, engine, labels = {} } = metricDeclaration(name);
    // Those of a namespace are among its other series.
    const isOfHolds = group === 'Reservations and leases' && !('namespace' in labels);
    return isOfHolds && engine === undefined;
  });
  expect(declared).toHaveLength(8);
  expect(names.toSorted()).toEqual(declared.toSorted());
});

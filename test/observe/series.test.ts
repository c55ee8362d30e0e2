import { expect, test } from 'vitest';
import { MetricSeries, type Sample } from '../../src/observe/series.ts';

test('a gauge without samples is absent, also after it had one', async () => {
  const series = new MetricSeries();
  let samples: Sample[] = [];
  series.gauge('weir_checkpoint_age_seconds', () => samples);
  const read = async () => (await series.text()).match(/^weir_.*/gm);
  expect(await read()).toBeNull();
  samples = [[{}, 0]];
  expect(await read()).toEqual(['weir_checkpoint_age_seconds 0']);
  samples = [];
  expect(await read()).toBeNull();
});

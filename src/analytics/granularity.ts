/** The lengths of the periods for which figures are kept. */

export const GRANULARITIES = ['minute', 'hour'] as const;
export type Granularity = (typeof GRANULARITIES)[number];

export const GRANULARITY_MS: Readonly<Record<Granularity, number>> = {
  minute: 60_000,
  hour: 3_600_000,
};

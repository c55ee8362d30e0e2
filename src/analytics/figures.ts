/** What is counted of a namespace in a period. */

export interface Figures {
  /** Checks. */
  allowed: number;
  denied: number;
  /** Costs of these checks. */
  tokensAllowed: number;
  tokensDenied: number;
}

export const NO_FIGURES: Readonly<Figures> = {
  ...{ allowed: 0, denied: 0, tokensAllowed: 0, tokensDenied: 0 },
};

export const GRANULARITIES = ['minute', 'hour'] as const;
export type Granularity = (typeof GRANULARITIES)[number];

export const GRANULARITY_MS: Readonly<Record<Granularity, number>> = {
  minute: 60_000,
  hour: 3_600_000,
};

export function addFigures(a: Figures, b: Figures): Figures {
  return {
    allowed: a.allowed + b.allowed,
    denied: a.denied + b.denied,
    tokensAllowed: a.tokensAllowed + b.tokensAllowed,
    tokensDenied: a.tokensDenied + b.tokensDenied,
  };
}

/** Whether a server is ready, for tests in which its shard workers may have been replaced. */

interface Answer {
  status: string;
  reasons?: readonly string[];
}

/** Ready, or degraded only because a worker was replaced, which is reported for 10 minutes. */
export function hasRecovered({ status, reasons = [] }: Answer): boolean {
  const others = reasons.filter((text) => !text.startsWith('shard workers replaced in the last '));
  return status === 'ready' || (status === 'degraded' && others.length === 0);
}

/** Asks the admin port. */
export async function isReady({ adminUrl }: { adminUrl: string }): Promise<boolean> {
  return hasRecovered((await (await fetch(`${adminUrl}/readyz`)).json()) as Answer);
}

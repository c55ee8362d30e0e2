/**
 * The dashboard as the main thread has it: its modules are loaded at the first request, since few
 * servers get one, and its operations run where those of the API run.
 */

import type { OperationRequest, OperationResult } from '../api/operations/messages.ts';
import { ApiError } from '../core/errors.ts';
import type { Dashboard, DashboardSources, Operations } from '../observe/dashboard/dashboard.ts';
import type { Acceptors } from './acceptors.ts';

export class DashboardLoader {
  readonly #sources: DashboardSources;
  #loading: Promise<Dashboard> | undefined;
  #dashboard: Dashboard | undefined;

  constructor(sources: DashboardSources) {
    this.#sources = sources;
  }

  load(): Promise<Dashboard> {
    this.#loading ??= import('../observe/dashboard/dashboard.ts').then(({ Dashboard }) => {
      this.#dashboard = new Dashboard(this.#sources);
      return this.#dashboard;
    });
    return this.#loading;
  }

  /** Called when keys were removed. */
  endInvalidSessions(): void {
    this.#dashboard?.endInvalidSessions();
  }
}

/** @param run runs an operation of the main thread, and never rejects */
export function dashboardOperations(
  acceptors: Acceptors,
  run: (request: OperationRequest) => Promise<OperationResult>,
): Operations {
  return {
    execute: async (operation, keyId, input) => {
      const result = await run({ operation, keyId, input });
      if ('body' in result) return { status: 200, body: result.body };
      const { code, message, faultLocation, stack } = result;
      if (code !== undefined) return new ApiError(code, message, faultLocation);
      throw Object.assign(new Error(message), { stack });
    },
    runOnCounters: (operation, keyId, role, body) => {
      return acceptors.runCounterOperation({ operation, keyId, ...(role && { role }), body });
    },
  };
}

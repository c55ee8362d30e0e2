/** What every view gets. */

import type { SessionInfo } from '../../observe/dashboard/snapshot.ts';
import type { Live } from './live.ts';
import type { Grant } from './permissions.ts';
import type { Route } from './router.ts';

export interface ViewProps {
  session: SessionInfo;
  grant: Grant;
  live: Live;
  route: Route;
}

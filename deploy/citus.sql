-- Distributes a house over the machines of a Citus cluster, by inbox. Not yet worth running: see
-- "How far" in docs/operations.md. It is kept so that what is missing is known table by table, and a
-- test holds it against the schema.
--
--     psql "$POSTROOM_DATABASE_URL" -f deploy/citus.sql      (all servers of the house stopped)

-- The rows of an inbox lie together, on one machine.
SELECT create_distributed_table('messages', 'inbox');
SELECT create_distributed_table('bodies', 'inbox', colocate_with => 'messages');
SELECT create_distributed_table('search_texts', 'inbox', colocate_with => 'messages');
SELECT create_distributed_table('message_labels', 'inbox', colocate_with => 'messages');
SELECT create_distributed_table('message_mailboxes', 'inbox', colocate_with => 'messages');
SELECT create_distributed_table('outbox', 'inbox', colocate_with => 'messages');
SELECT create_distributed_table('threads', 'inbox', colocate_with => 'messages');
SELECT create_distributed_table('thread_aliases', 'inbox', colocate_with => 'messages');
SELECT create_distributed_table('thread_ids', 'inbox', colocate_with => 'messages');
SELECT create_distributed_table('attachments', 'inbox', colocate_with => 'messages');
SELECT create_distributed_table('mailboxes', 'inbox', colocate_with => 'messages');
SELECT create_distributed_table('labels', 'inbox', colocate_with => 'messages');
SELECT create_distributed_table('events', 'inbox', colocate_with => 'messages');
SELECT create_distributed_table('contacts', 'inbox', colocate_with => 'messages');
SELECT create_distributed_table('contact_shapes', 'inbox', colocate_with => 'messages');
SELECT create_distributed_table('search_tail', 'inbox', colocate_with => 'messages');
SELECT create_distributed_table('webhook_deliveries', 'inbox', colocate_with => 'messages');
SELECT create_distributed_table('errands', 'inbox', colocate_with => 'messages');

-- Small, asked for by everyone, seldom changed: a copy on each machine.
SELECT create_reference_table('inboxes');
SELECT create_reference_table('accounts');
SELECT create_reference_table('identities');
SELECT create_reference_table('keys');
SELECT create_reference_table('rules');
SELECT create_reference_table('webhooks');
SELECT create_reference_table('facts');

-- Stay on the coordinator.
--   By account:                       remotes pushes
--   One for the whole house:          search_segments search_rows search_sets search_changes
--                                     sends drafts leases domain_sends mail_texts
--                                     plans plan_items audit audit_pending audit_head
--                                     schema_version write_marks
--   By namespace, not by inbox:       shelves leaves dead_leaves segments postings
--                                     memories memory_versions memory_tags memory_links
--                                     memory_ties memory_shingles

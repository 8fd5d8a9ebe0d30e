-- Distributes an installation over a Citus cluster, by inbox. It has not been run on a cluster yet:
-- read "Citus" in docs/how-to/operations.md for its known limits. A test compares it with the schema.
--
--     psql "$POSTROOM_DATABASE_URL" -1 -f deploy/citus.sql      (stop all servers first)

-- Distributed by inbox: all rows of an inbox are on one node.
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
SELECT create_distributed_table('removed_events', 'inbox', colocate_with => 'messages');
SELECT create_distributed_table('contacts', 'inbox', colocate_with => 'messages');
SELECT create_distributed_table('contact_skeletons', 'inbox', colocate_with => 'messages');
SELECT create_distributed_table('search_buffer', 'inbox', colocate_with => 'messages');
SELECT create_distributed_table('webhook_deliveries', 'inbox', colocate_with => 'messages');
SELECT create_distributed_table('rule_jobs', 'inbox', colocate_with => 'messages');

-- Small and seldom changed: replicated to every node.
SELECT create_reference_table('inboxes');
SELECT create_reference_table('accounts');
SELECT create_reference_table('identities');
SELECT create_reference_table('inbox_policies');
SELECT create_reference_table('keys');
SELECT create_reference_table('rules');
SELECT create_reference_table('webhooks');
SELECT create_reference_table('metadata');

-- Stay on the coordinator.
--   By account:                       remote_messages pushes
--   For the whole installation:       search_segments search_rows search_sets search_changes
--                                     sends drafts leases domain_sends suspicious_reads
--                                     web_sessions sign_in_links daily_mail daily_calls
--                                     plans plan_items audit audit_pending audit_head
--                                     schema_version write_marks upgrade_losses automatic_replies
--   By namespace, not by inbox:       ranking_collections ranking_documents
--                                     ranking_deletions ranking_segments ranking_postings
--                                     memories memory_versions memory_tags memory_links
--                                     memory_ties memory_shingles mail_memories
--                                     mail_memory_digests mail_memory_sources

<?php
/** What emulated users need: all of them come from one address and write faster than people, and nobody has mail. */

add_filter('wp_is_comment_flood', '__return_false', 99);
add_filter('duplicate_comment_id', '__return_false');
// Everybody may write to everybody's post: a wiki's habit, so that any user can edit the popular ones.
add_filter(
    'map_meta_cap',
    static fn (array $needed, string $wanted) => $wanted === 'edit_post' ? ['edit_posts'] : $needed,
    10,
    2
);

function wp_mail($to, $subject, $message, $headers = '', $attachments = []): bool
{
    return true;
}
